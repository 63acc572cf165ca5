"""Reads the e-mails that the emulator's SES took instead of sending them."""

from dataclasses import dataclass
from datetime import UTC, datetime

import urllib3


@dataclass(frozen=True, slots=True)
class Mail:
    """A captured e-mail."""

    sender: str
    to: tuple[str, ...]
    subject: str
    text: str
    sent_at: datetime


class Mailbox:
    """Every e-mail since the emulator started, oldest first."""

    def __init__(self, endpoint_url: str) -> None:
        self.url = f"{endpoint_url}/_ministack/ses/messages"

    def all(self) -> list[Mail]:
        """Return every e-mail."""
        accounts = urllib3.request("GET", self.url, timeout=5, retries=False).json()["messages"]
        return [
            Mail(
                sender=message["Source"],
                to=tuple(message["To"]),
                subject=message["Subject"],
                text=message["BodyText"],
                sent_at=datetime.fromtimestamp(message["Timestamp"], UTC),
            )
            for messages in accounts.values()
            for message in messages
        ]

    def to(self, address: str) -> list[Mail]:
        """Return the e-mails to one address."""
        return [mail for mail in self.all() if address in mail.to]

    def about_repositories(self, address: str) -> list[Mail]:
        """Return the e-mails to one address that tell of repositories, and do not ask for its confirmation."""
        return [mail for mail in self.to(address) if mail.subject.startswith("Your repository")]
