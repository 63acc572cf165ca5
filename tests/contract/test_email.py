"""E-mail: the fake and SES take and refuse the same, and no address gets into what is told of a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import pytest
from moto.backends import get_backend

from app.email import Email, EmailNotSent, Sender
from app.testing import FakeEmail, SentEmail
from mailroom import clients
from mailroom.clients import Call
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.testing import ManualClock
from tests.faults import failing, refused, timed_out

SENDER, ADDRESS = "sender@example.com", "Someone@Example.com"
LETTER = {"to": ADDRESS, "receiver": "owner 'team'", "subject": "Ready", "text": "It is.", "event_id": "01-03"}


def email_from(address: str, clock: ManualClock | None = None) -> Email:
    return Email(Sender(address, clock or ManualClock()))


class Mail(Protocol):
    """E-mail, and what its other side can be told and asked."""

    email: Email

    def refuse(self, code: str, kind: FailureKind) -> Any:
        """Answer every e-mail with an error code inside the block."""

    @property
    def sent(self) -> list[SentEmail]:
        """What was taken."""


class FakeMail:
    """The mailbox that other tests use."""

    def __init__(self) -> None:
        self.email = self._fake = FakeEmail()

    def refuse(self, code: str, kind: FailureKind) -> Any:
        self._fake.answer = lambda _: Failure(kind, code, "told so")
        return failing(lambda _: False, refused(code))

    @property
    def sent(self) -> list[SentEmail]:
        return self._fake.sent


class SesMail:
    """SES, by moto."""

    def __init__(self) -> None:
        clients.ses().verify_email_identity(EmailAddress=SENDER)
        self.email = email_from(SENDER)

    def refuse(self, code: str, kind: FailureKind) -> Any:
        return failing("SendEmail", refused(code), times=100)

    @property
    def sent(self) -> list[SentEmail]:
        messages = get_backend("ses")["123456789012"]["us-east-1"].sent_messages
        return [SentEmail(m.destinations["ToAddresses"][0], m.subject, m.body, "01-03") for m in messages]


@pytest.fixture(params=[FakeMail, SesMail], ids=["fake", "ses"])
def mail(request: pytest.FixtureRequest) -> Mail:
    """Each in turn."""
    made: Mail = request.param()
    return made


def failure_in(act: Callable[[], None]) -> Failure:
    with pytest.raises(EmailNotSent) as caught:
        act()
    return failure_of(caught.value)


def test_an_email_is_sent(mail: Mail) -> None:
    mail.email.send(**LETTER)
    assert mail.sent == [SentEmail(ADDRESS, "Ready", "It is.", "01-03")]


def test_an_email_speaks_every_language(mail: Mail) -> None:
    mail.email.send(**{**LETTER, "subject": "Bücher 本 🐙", "text": "прочитано"})
    assert [(each.subject, each.text) for each in mail.sent] == [("Bücher 本 🐙", "прочитано")]


def test_ses_is_told_the_character_set__else_it_takes_ascii_alone() -> None:
    with failing(lambda call: call.operation == "SendEmail", refused("Throttling")) as fault:
        failure_in(lambda: SesMail().email.send(**LETTER))
    message = fault.struck[0].parameters["Message"]
    assert {message["Subject"]["Charset"], message["Body"]["Text"]["Charset"]} == {"UTF-8"}


@pytest.mark.parametrize("end", ["\r\nBcc: other@example.com", "\n", "\r", "\x00", "\x85", "\u2028", "\u2029", "\x0b"])
def test_a_subject_is_one_line__so_nothing_adds_a_header(mail: Mail, end: str) -> None:
    with pytest.raises(Permanent, match="line breaks"):
        mail.email.send(**{**LETTER, "subject": f"Ready{end}"})
    assert mail.sent == []


@pytest.mark.parametrize("code", ["MessageRejected", "InvalidParameterValue"])
def test_an_address_that_cannot_be_is_no_use_to_try_again(mail: Mail, code: str) -> None:
    with mail.refuse(code, FailureKind.PERMANENT):
        failure = failure_in(lambda: mail.email.send(**LETTER))
    assert (failure.kind, failure.type) == (FailureKind.PERMANENT, code)


@pytest.mark.parametrize(
    "code",
    ["Throttling", "AccountSendingPausedException", "MailFromDomainNotVerifiedException", "ServiceUnavailable"],
)
def test_what_is_nobodys_fault_is_tried_again(mail: Mail, code: str) -> None:
    with mail.refuse(code, FailureKind.UNAVAILABLE):
        assert failure_in(lambda: mail.email.send(**LETTER)).kind is FailureKind.UNAVAILABLE


def test_a_failure_names_the_owner(mail: Mail) -> None:
    with mail.refuse("InvalidParameterValue", FailureKind.PERMANENT):
        assert failure_in(lambda: mail.email.send(**LETTER)).message.startswith("owner 'team': ")


@pytest.mark.parametrize("code", ["InvalidParameterValue", "AccessDenied", "Throttling"])
def telling(code: str, message: str) -> Callable[[Call], BaseException]:
    """Refuse with SES's own words."""

    def error(call: Call) -> BaseException:
        refusal: Any = refused(code)(call)
        refusal.response["Error"]["Message"] = message
        return cast("BaseException", refusal)

    return error


@pytest.mark.parametrize("code", ["InvalidParameterValue", "AccessDenied", "Throttling"])
def test_a_failure_does_not_tell_the_address__though_ses_does(code: str) -> None:
    ses_says = telling(code, f"not allowed on identity/{ADDRESS.lower()} in this region")
    with failing("SendEmail", ses_says), pytest.raises(EmailNotSent) as caught:
        SesMail().email.send(**LETTER)
    assert caught.value.__suppress_context__, "a traceback does not tell it either"
    assert failure_of(caught.value).message == "owner 'team': not allowed on identity/the address in this region"


def test_failures_of_two_owners_are_one_group() -> None:
    def fingerprint(receiver: str) -> str:
        with failing("SendEmail", refused("InvalidParameterValue")):
            return failure_in(lambda: SesMail().email.send(**{**LETTER, "receiver": receiver})).fingerprint

    assert fingerprint("owner 'team'") == fingerprint("owner 'another'")


def test_a_sender_that_nobody_verified_is_no_verdict_on_the_email() -> None:
    failure = failure_in(lambda: email_from("stranger@elsewhere.example").send(**LETTER))
    assert (failure.kind, failure.type) == (FailureKind.UNAVAILABLE, "MessageRejected")


def test_a_sender_is_verified_by_its_domain_too() -> None:
    clients.ses().verify_domain_identity(Domain="example.com")
    email_from("anyone@example.com").send(**LETTER)
    with failing("SendEmail", refused("MessageRejected")):
        failure = failure_in(lambda: email_from("anyone@example.com").send(**LETTER))
    assert failure.kind is FailureKind.PERMANENT


@pytest.mark.parametrize("domain", ["mail.example.com", "example.com"])
def test_a_sender_is_verified_by_any_domain_that_it_is_in(domain: str) -> None:
    clients.ses().verify_domain_identity(Domain=domain)
    with failing("SendEmail", refused("MessageRejected")):
        failure = failure_in(lambda: email_from("anyone@eu.mail.example.com").send(**LETTER))
    assert failure.kind is FailureKind.PERMANENT


@pytest.mark.parametrize("domain", ["com", "other.example.com", "ample.com", "x.eu.mail.example.com"])
def test_a_sender_is_verified_by_no_other_domain__nor_by_the_last_label_alone(domain: str) -> None:
    clients.ses().verify_domain_identity(Domain=domain)
    with failing("SendEmail", refused("MessageRejected")):
        failure = failure_in(lambda: email_from("anyone@eu.mail.example.com").send(**LETTER))
    assert failure.kind is FailureKind.UNAVAILABLE


def test_ses_is_asked_once_for_all_of_a_senders_domains() -> None:
    with (
        failing("SendEmail", refused("MessageRejected")),
        failing("GetIdentityVerificationAttributes", refused("AccessDenied"), times=10) as fault,
    ):
        failure_in(lambda: email_from("anyone@eu.mail.example.com").send(**LETTER))
    (asked,) = fault.struck
    assert asked.parameters["Identities"] == [
        "anyone@eu.mail.example.com",
        "eu.mail.example.com",
        "mail.example.com",
        "example.com",
    ]


@pytest.mark.parametrize("error", [refused("AccessDenied"), refused("Throttling"), timed_out])
def test_in_doubt_a_rejection_is_no_verdict_on_the_email(error: Callable[[Call], BaseException]) -> None:
    with failing("SendEmail", refused("MessageRejected")), failing(LOOK_UP, error, times=10):
        failure = failure_in(lambda: SesMail().email.send(**LETTER))
    assert (failure.kind, failure.type) == (FailureKind.UNAVAILABLE, "MessageRejected")


LOOK_UP = "GetIdentityVerificationAttributes"


@pytest.mark.parametrize(
    ("sender", "kind"),
    [(SENDER, FailureKind.PERMANENT), ("stranger@elsewhere.example", FailureKind.UNAVAILABLE)],
    ids=["verified", "not"],
)
def test_ses_is_asked_for_a_sender_once_a_minute(sender: str, kind: FailureKind) -> None:
    clients.ses().verify_email_identity(EmailAddress=SENDER)
    clock = ManualClock()
    email = email_from(sender, clock)
    asked: list[Call] = []
    with (
        failing("SendEmail", refused("MessageRejected"), times=100),
        failing(lambda call: call.operation == LOOK_UP and bool(asked.append(call)), refused("never")),
    ):
        for _ in range(30):
            assert failure_in(lambda: email.send(**LETTER)).kind is kind
            clock.advance(2 - 2**-4)
        assert len(asked) == 1
        clock.advance(2)
        failure_in(lambda: email.send(**LETTER))
    assert len(asked) == 2


def test_doubt_is_remembered_too__else_each_rejection_would_ask_a_service_that_is_throttled() -> None:
    email = SesMail().email
    with (
        failing("SendEmail", refused("MessageRejected"), times=100),
        failing(LOOK_UP, refused("Throttling"), times=100) as fault,
    ):
        for _ in range(20):
            assert failure_in(lambda: email.send(**LETTER)).kind is FailureKind.UNAVAILABLE
    assert len(fault.struck) == 1


def test_a_sender_that_was_verified_meanwhile_is_found__after_a_minute() -> None:
    clock = ManualClock()
    email = email_from("late@elsewhere.example", clock)
    with failing("SendEmail", refused("MessageRejected"), times=100):
        assert failure_in(lambda: email.send(**LETTER)).kind is FailureKind.UNAVAILABLE
        clients.ses().verify_email_identity(EmailAddress="late@elsewhere.example")
        clock.advance(60)
        assert failure_in(lambda: email.send(**LETTER)).kind is FailureKind.PERMANENT


def test_a_receiver_whom_a_sandbox_does_not_know_is_the_accounts_matter__and_the_sender_is_not_looked_at() -> None:
    ses_says = telling(
        "MessageRejected",
        f"Email address is not verified. The following identities failed the check in region US-EAST-1: {ADDRESS}",
    )
    email = SesMail().email
    with failing("SendEmail", ses_says), failing(LOOK_UP, refused("Throttling")) as fault:
        failure = failure_in(lambda: email.send(**LETTER))
    assert (failure.kind, fault.struck) == (FailureKind.UNAVAILABLE, [])
    assert failure.message.endswith("failed the check in region US-EAST-1: the address")
