"""Tell owners about their new repositories."""

from __future__ import annotations

from app.email import Email, emails
from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import consumer
from mailroom.telemetry import LogEvent, Metric, count, log
from mailroom.unit_of_work import UnitOfWork


@consumer(on=RepoCreated, reads=[Owner], uses=[Email], rate=emails, max_concurrency=5)
def notifications(event: RepoCreated, work: UnitOfWork) -> None:
    """Write to the owner, if there is an address to write to and somebody confirmed it."""
    owner = work.get(Owner, event.owner_id)
    if owner is None or owner.email is None:
        _skip("the owner has no e-mail address", event)
        return
    if not owner.email_confirmed:
        _skip("nobody confirmed the owner's e-mail address", event)
        return
    work.use(Email).send(
        to=owner.email,
        receiver=f"owner {owner.id!r}",
        subject=f"Your repository {event.name} is ready",
        text=f"The repository {event.name} was created. Its id is {event.repo_id}.",
        event_id=work.cause_id,
    )


def _skip(reason: str, event: RepoCreated) -> None:
    log(LogEvent.EMAIL_SKIPPED, reason=reason, owner_id=event.owner_id)
    count(Metric.EMAILS_SKIPPED)
