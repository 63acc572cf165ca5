"""E-mail by Amazon SES."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from app.settings import AppSettings
from mailroom import clients
from mailroom.needs import Need

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

EVENT_ID_TAG = "mailroom-event-id"
"""The SES message tag that carries the event's id, for whoever asks whether a mail went out twice."""


class Email:
    """Sends plain e-mails from one address."""

    def __init__(self, sender: str) -> None:
        self._sender = sender

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to send."""
        why_many = "SES checks the identities of the sender and, in its sandbox, of each receiver"
        return (Need(("ses:SendEmail",), "ses:identity/*", why_many),)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Send from the stage's address."""
        return cls(runtime.of(AppSettings).email_sender)

    def send(self, *, to: str, subject: str, text: str, event_id: str) -> None:
        """Send one e-mail."""
        clients.ses().send_email(
            Source=self._sender,
            Destination={"ToAddresses": [to]},
            Message={"Subject": {"Data": subject}, "Body": {"Text": {"Data": text}}},
            Tags=[{"Name": EVENT_ID_TAG, "Value": event_id}],
        )
