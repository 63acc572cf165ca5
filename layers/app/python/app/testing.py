"""What tests of the application pass in for its outward ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.email import Email, EmailNotSent, check_subject
from mailroom.failures import Failure


@dataclass(frozen=True, slots=True)
class SentEmail:
    """An e-mail that was taken."""

    to: str
    subject: str
    text: str
    event_id: str


class FakeEmail(Email):
    """A mailbox in memory.

    Parameters
    ----------
    answer
        Why an address gets no e-mail; None is that it does.
    """

    def __init__(self, answer: Callable[[str], Failure | None] = lambda _: None) -> None:
        self.answer = answer
        self.sent: list[SentEmail] = []

    def send(self, *, to: str, receiver: str, subject: str, text: str, event_id: str) -> None:
        """Remember what goes well."""
        check_subject(subject)
        failure = self.answer(to)
        if failure is not None:
            raise EmailNotSent(Failure(failure.kind, failure.type, f"{receiver}: {failure.message}"))
        self.sent.append(SentEmail(to, subject, text, event_id))
