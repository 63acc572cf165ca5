"""The confirmation of an owner's e-mail: what is sent to an address that nobody confirmed, and what confirms it."""

from __future__ import annotations

import re

import pytest

from app.consumers.confirmations import confirmations
from app.email import Email
from app.events import OwnerEmailChanged
from app.testing import FakeEmail
from mailroom.failures import Failure, FailureKind
from mailroom.http.testing import ApiClient
from mailroom.outbox.table import OutboxRow
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent
from mailroom.testing import ManualClock
from mailroom.timings import DAY, MINUTE
from tests.inbox import Inbox
from tests.integration.api.conftest import Rows
from tests.integration.conftest import CallCounter
from tests.log_lines import Lines

OWNER = "/api/v1/owners/owner-1"
CONFIRMATION = f"{OWNER}/email-confirmation"
ADDRESS = "someone@example.com"
OTHER = "other@example.com"
NO_TOKEN = "0" * 32


class Mails:
    """Delivers to `confirmations` what was published since the last time."""

    def __init__(self, runtime: Runtime, clock: ManualClock, mailbox: FakeEmail) -> None:
        self.inbox = Inbox(confirmations, runtime, clock)
        self.mailbox = mailbox
        self._delivered: set[str] = set()

    def published(self) -> list[OutboxRow]:
        rows = sorted(OutboxRow.scan(consistent_read=True), key=lambda row: row.event_id)
        return [row for row in rows if row.type == OwnerEmailChanged.type]

    def deliver(self) -> bool:
        for row in self.published():
            if row.event_id not in self._delivered:
                self._delivered.add(row.event_id)
                self.inbox.send(OwnerEmailChanged.model_validate_json(row.payload), row.event_id)
        return self.inbox.deliver()

    def token(self) -> str:
        """Deliver, and return the token of the latest e-mail."""
        assert self.deliver()
        (token,) = re.findall(r"\b[0-9a-f]{32}\b", self.mailbox.sent[-1].text)
        return str(token)


@pytest.fixture
def mails(runtime: Runtime, clock: ManualClock) -> Mails:
    mailbox = FakeEmail()
    runtime.provide(Email, mailbox)
    return Mails(runtime, clock, mailbox)


def put(client: ApiClient, email: str | None = ADDRESS) -> int:
    return client.put(OWNER, {"email": email, "repo_quota": 7}).status


def confirm(client: ApiClient, token: str, key: str = "k") -> tuple[int, str | None]:
    answer = client.post(CONFIRMATION, {"token": token}, key=key)
    return answer.status, answer.json["type"] if answer.status >= 400 else None


def confirmed(client: ApiClient) -> bool:
    return bool(client.get(OWNER).json["email_confirmed"])


WRONG = (409, "/problems/wrong-confirmation-token")
EXPIRED = (409, "/problems/expired-confirmation-token")


def test_a_new_address_is_asked__by_one_mail_that_says_who_wants_what(client: ApiClient, mails: Mails) -> None:
    assert put(client) == 200
    assert mails.deliver()
    (mail,) = mails.mailbox.sent
    assert (mail.to, mail.event_id) == (ADDRESS, mails.published()[0].event_id)
    assert "owner-1" in mail.text
    assert "ignore this e-mail" in mail.text
    assert not confirmed(client)


def test_the_token_confirms__and_again_changes_nothing(client: ApiClient, mails: Mails, calls: CallCounter) -> None:
    put(client)
    token = mails.token()
    assert confirm(client, token) == (204, None)
    assert confirmed(client)
    assert confirm(client, token, key="another") == (204, None)
    assert confirmed(client)


def test_the_address_and_the_token_are_in_no_event_record_or_log_line(
    client: ApiClient, mails: Mails, rows: Rows, logs: Lines
) -> None:
    put(client)
    token = mails.token()
    confirm(client, token)
    told = str((rows("outbox"), rows("idempotency"), logs()))
    assert ADDRESS not in told
    assert token not in told + str(rows("owners"))


@pytest.mark.parametrize("token", [NO_TOKEN, "f" * 32])
def test_a_wrong_token_is_refused__before_and_after_the_mail(client: ApiClient, mails: Mails, token: str) -> None:
    assert confirm(client, token) == WRONG
    put(client)
    assert confirm(client, token) == WRONG
    mails.deliver()
    assert confirm(client, token) == WRONG
    assert not confirmed(client)


@pytest.mark.parametrize("token", ["", "0" * 31, "0" * 33, "G" * 32, "A" * 32, 7, None, "é" * 32])
def test_what_is_no_token_is_refused(client: ApiClient, calls: CallCounter, token: object) -> None:
    answer = client.post(CONFIRMATION, {"token": token}, key="k")
    assert (answer.status, answer.json["errors"][0]["field"]) == (400, "token")


def test_a_token_expires_after_a_day__and_the_address_is_asked_again_by_a_put(
    client: ApiClient, mails: Mails, clock: ManualClock
) -> None:
    put(client)
    token = mails.token()
    clock.advance(DAY)
    assert confirm(client, token) == EXPIRED
    put(client)
    assert confirm(client, mails.token()) == (204, None)


def test_a_token_confirms__a_moment_before_it_expires(client: ApiClient, mails: Mails, clock: ManualClock) -> None:
    put(client)
    token = mails.token()
    clock.advance(DAY - 1)
    assert confirm(client, token) == (204, None)


def test_another_address_is_unconfirmed__and_the_old_token_is_worth_nothing(
    client: ApiClient, mails: Mails, clock: ManualClock
) -> None:
    put(client)
    token = mails.token()
    confirm(client, token)
    clock.advance(5 * MINUTE)
    assert put(client, OTHER) == 200
    assert not confirmed(client)
    assert confirm(client, token, key="another") == WRONG
    assert confirm(client, mails.token(), key="third") == (204, None)
    assert mails.mailbox.sent[-1].to == OTHER


def test_the_same_address_stays_confirmed__and_is_not_asked_again(
    client: ApiClient, mails: Mails, clock: ManualClock
) -> None:
    put(client)
    confirm(client, mails.token())
    clock.advance(DAY)
    assert put(client) == 200
    assert confirmed(client)
    assert len(mails.published()) == 1


def test_an_address_that_was_removed_is_unconfirmed__when_it_comes_back(
    client: ApiClient, mails: Mails, clock: ManualClock
) -> None:
    put(client)
    confirm(client, mails.token())
    put(client, None)
    clock.advance(5 * MINUTE)
    put(client)
    assert not confirmed(client)


def test_an_unconfirmed_address_is_asked_again__after_five_minutes_and_not_before(
    client: ApiClient, mails: Mails, clock: ManualClock
) -> None:
    put(client)
    clock.advance(5 * MINUTE - 1)
    assert put(client) == 200
    assert len(mails.published()) == 1
    clock.advance(1)
    assert put(client) == 200
    assert len(mails.published()) == 2


@pytest.mark.parametrize("between", [[], [None]], ids=["at once", "by way of none"])
def test_another_address_is_refused__less_than_five_minutes_after_the_last_mail(
    client: ApiClient, mails: Mails, clock: ManualClock, between: list[None]
) -> None:
    put(client)
    for email in between:
        put(client, email)
    answer = client.put(OWNER, {"email": OTHER, "repo_quota": 1})
    assert (answer.status, answer.json["type"]) == (409, "/problems/email-changed-too-soon")
    assert client.get(OWNER).json["repo_quota"] == 7
    clock.advance(5 * MINUTE)
    assert put(client, OTHER) == 200


def test_of_two_changes_before_the_mail_one_is_sent__to_the_address_of_now(
    client: ApiClient, mails: Mails, clock: ManualClock, logs: Lines
) -> None:
    put(client)
    clock.advance(5 * MINUTE)
    put(client, OTHER)
    assert mails.deliver()
    assert [mail.to for mail in mails.mailbox.sent] == [OTHER]
    assert [line["owner_id"] for line in logs() if line["message"] == LogEvent.EMAIL_SKIPPED] == ["owner-1"]


def test_a_mail_that_was_throttled_is_sent_later(client: ApiClient, mails: Mails, clock: ManualClock) -> None:
    mails.mailbox.answer = lambda _: Failure(FailureKind.UNAVAILABLE, "Throttling", "slow down")
    put(client)
    assert not mails.deliver()
    mails.mailbox.answer = lambda _: None
    clock.advance(3_600)
    assert confirm(client, mails.token()) == (204, None)


def test_nothing_confirms_by_get(client: ApiClient, mails: Mails) -> None:
    put(client)
    mails.token()
    assert client.get(CONFIRMATION).status == 405
    assert not confirmed(client)
