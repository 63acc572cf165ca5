"""Tell owners about their new repositories."""

from __future__ import annotations

from app.email import Email
from app.events import RepoCreated
from app.owners import Owner
from app.settings import AppSettings
from mailroom.consumer import consumer
from mailroom.rate import Rate
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent, Metric, count, log
from mailroom.unit_of_work import UnitOfWork


def emails(runtime: Runtime) -> Rate:
    """Return how many e-mails the account may send."""
    return Rate(runtime.of(AppSettings).emails_per_second, per=1)


@consumer(on=RepoCreated, reads=[Owner], uses=[Email], rate=emails, max_concurrency=5)
def notifications(event: RepoCreated, work: UnitOfWork) -> None:
    """Write to the owner, if there is an address to write to."""
    owner = work.get(Owner, event.owner_id)
    if owner is None or owner.email is None:
        log(LogEvent.EMAIL_SKIPPED, reason="the owner has no e-mail address", owner_id=event.owner_id)
        count(Metric.EMAILS_SKIPPED)
        return
    work.use(Email).send(
        to=owner.email,
        receiver=f"owner {owner.id!r}",
        subject=f"Your repository {event.name} is ready",
        text=f"The repository {event.name} was created. Its id is {event.repo_id}.",
        event_id=work.cause_id,
    )
