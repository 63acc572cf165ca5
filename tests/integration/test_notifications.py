"""The consumer `notifications`: who gets an e-mail, who is skipped, and what becomes of a refusal."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from app.consumers.notifications import notifications
from app.email import Email, check_subject
from app.events import RepoCreated
from app.owners import Owner
from app.repos import RepoName
from app.testing import FakeEmail
from mailroom.failures import Failure, FailureKind
from mailroom.idempotency import IdempotencyRow
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent
from mailroom.testing import ManualClock
from tests.inbox import EVENT, Inbox
from tests.log_lines import Lines

ADDRESS = "someone@example.com"
CREATED = RepoCreated(repo_id="1", name="tool", owner_id="team")
BOUNCES = Failure(FailureKind.PERMANENT, "MessageRejected", "the address cannot be")


@pytest.fixture
def mailbox(runtime: Runtime) -> FakeEmail:
    mailbox = FakeEmail()
    runtime.provide(Email, mailbox)
    return mailbox


@pytest.fixture
def inbox(runtime: Runtime, clock: ManualClock) -> Inbox:
    return Inbox(notifications, runtime, clock)


@pytest.fixture
def known(runtime: Runtime) -> None:
    """The owner has an address that was confirmed."""
    Owner("team", email=ADDRESS, email_confirmed=True).save()


@pytest.mark.usefixtures("known")
def test_the_owner_is_told__at_the_address_of_now(inbox: Inbox, mailbox: FakeEmail) -> None:
    inbox.send(CREATED)
    assert inbox.deliver()
    (mail,) = mailbox.sent
    assert (mail.to, mail.subject, mail.event_id) == (ADDRESS, "Your repository tool is ready", EVENT)
    assert "1" in mail.text


@pytest.mark.parametrize("owner", [None, Owner("team"), Owner("team", repo_quota=3)], ids=["none", "bare", "quota"])
def test_an_owner_without_an_address_is_skipped__and_that_is_no_failure(
    inbox: Inbox, mailbox: FakeEmail, logs: Lines, owner: Owner | None
) -> None:
    if owner is not None:
        owner.save()
    inbox.send(CREATED)
    assert inbox.deliver()
    assert mailbox.sent == []
    (line,) = [line for line in logs() if line["message"] == LogEvent.EMAIL_SKIPPED]
    assert line["owner_id"] == "team"


@pytest.mark.parametrize("confirmed", [False, None], ids=["not yet", "a row of before there was confirmation"])
def test_nothing_is_sent_to_an_address_that_nobody_confirmed__and_that_is_no_failure(
    inbox: Inbox, mailbox: FakeEmail, logs: Lines, confirmed: bool | None
) -> None:
    Owner("team", email=ADDRESS, email_confirmed=confirmed).save()
    inbox.send(CREATED)
    assert inbox.deliver()
    assert mailbox.sent == []
    (line,) = [line for line in logs() if line["message"] == LogEvent.EMAIL_SKIPPED]
    assert line["reason"] == "nobody confirmed the owner's e-mail address"


@pytest.mark.usefixtures("known")
def test_an_address_that_cannot_be_is_tried_once__and_the_dead_letter_says_whose_it_is(
    inbox: Inbox, mailbox: FakeEmail
) -> None:
    asked: list[str] = []
    mailbox.answer = lambda to: asked.append(to) or BOUNCES  # type: ignore[func-returns-value]
    inbox.send(CREATED)
    inbox.deliver_until_dead()
    assert (asked, len(inbox.source.dead)) == ([ADDRESS], 1)
    (record,) = IdempotencyRow.scan()
    assert Failure.from_json(record.failure).message == "owner 'team': the address cannot be"


@pytest.mark.usefixtures("known")
def test_no_address_gets_into_logs_and_records(inbox: Inbox, mailbox: FakeEmail, logs: Lines) -> None:
    mailbox.answer = lambda _: BOUNCES
    inbox.send(CREATED)
    inbox.deliver_until_dead()
    (record,) = IdempotencyRow.scan()
    assert ADDRESS not in str(logs())
    assert ADDRESS not in str(record.serialize())


@pytest.mark.usefixtures("known")
def test_an_email_that_was_throttled_is_sent_later(inbox: Inbox, mailbox: FakeEmail, clock: ManualClock) -> None:
    mailbox.answer = lambda _: Failure(FailureKind.UNAVAILABLE, "Throttling", "slow down")
    inbox.send(CREATED)
    assert not inbox.deliver()
    mailbox.answer = lambda _: None
    clock.advance(3_600)
    assert inbox.deliver()
    assert len(mailbox.sent) == 1


@pytest.mark.usefixtures("known")
def test_an_event_delivered_twice_is_one_email(inbox: Inbox, mailbox: FakeEmail) -> None:
    inbox.send(CREATED)
    inbox.send(CREATED)
    assert inbox.deliver()
    assert len(mailbox.sent) == 1


@pytest.mark.usefixtures("known")
def test_a_name_that_would_add_headers_sends_nothing(inbox: Inbox, mailbox: FakeEmail) -> None:
    inbox.send(CREATED.model_copy(update={"name": "tool\r\nBcc: other@example.com"}))
    inbox.deliver_until_dead()
    assert (mailbox.sent, len(inbox.source.dead)) == ([], 1)


@given(st.text())
@example("tool\nBcc: other@example.com")
@example("tool\r")
@example("a\x85b")
@example("a\u2028b")
def test_no_name_that_a_repository_may_have_can_add_a_header(name: str) -> None:
    try:
        accepted = TypeAdapter(RepoName).validate_python(name)
    except ValidationError:
        return
    assert len(f"x{accepted}x".splitlines()) == 1
    check_subject(f"Your repository {accepted} is ready")
