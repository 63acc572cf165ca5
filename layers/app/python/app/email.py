"""E-mail by Amazon SES."""

from __future__ import annotations

import re
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Self

from botocore.exceptions import BotoCoreError, ClientError

from app.line import LINE
from app.settings import AppSettings
from mailroom import clients
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.needs import Need
from mailroom.rate import Rate
from mailroom.timings import MINUTE

if TYPE_CHECKING:
    from types_boto3_ses.type_defs import ContentTypeDef

    from mailroom.clock import Clock
    from mailroom.runtime import Runtime

EVENT_ID_TAG = "mailroom-event-id"
"""The SES message tag that carries the event's id, for whoever asks whether a mail went out twice."""
CHARSET = "UTF-8"
"""Without it SES takes nothing but ASCII. https://docs.aws.amazon.com/ses/latest/APIReference/API_Content.html"""
_NOT_VERIFIED = re.compile(r"address (is )?not verified", re.IGNORECASE)
"""SES says so of a sender and, to an account in its sandbox, of a receiver, by its code for bad e-mails too.
https://docs.aws.amazon.com/ses/latest/dg/troubleshoot-error-messages.html"""
_REMEMBERED = MINUTE
"""Seconds for which a look at the sender counts: SES answers one a second in all.
https://docs.aws.amazon.com/ses/latest/APIReference/API_GetIdentityVerificationAttributes.html"""


def emails(runtime: Runtime) -> Rate:
    """Return how many e-mails the account may send."""
    return Rate(runtime.of(AppSettings).emails_per_second, per=1)


class EmailNotSent(Exception):
    """SES did not take an e-mail.

    Parameters
    ----------
    failure
        Why, and whose it was; the address is not in it.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Sender:
    """The address that e-mails come from, and whether SES takes e-mails from it."""

    def __init__(self, address: str, clock: Clock) -> None:
        self.address = address
        self._clock = clock
        self._looking = Lock()
        self._verified = False
        self._looked_at: float | None = None

    def is_verified(self) -> bool:
        """Return whether SES is known to take e-mails from it, as of a minute ago at most; in doubt it is not."""
        with self._looking:
            now = self._clock.monotonic()
            if self._looked_at is None or now - self._looked_at >= _REMEMBERED:
                self._verified, self._looked_at = self._look(), now
            return self._verified

    def _look(self) -> bool:
        try:
            return is_verified(self.address)
        except (ClientError, BotoCoreError):
            return False


class Email:
    """Sends plain e-mails from one address."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to send, and to ask whether we may send as who we are."""
        why_many = "SES checks the identities of the sender and, in its sandbox, of each receiver"
        asking = "asking for the state of an identity knows no resources"
        return (
            Need(
                ("ses:SendEmail",),
                "ses:identity/*",
                why_many,
                # Whoever takes the function over must not write in the name of the account's other addresses.
                conditions={"StringEquals": {"ses:FromAddress": runtime.of(AppSettings).email_sender}},
            ),
            Need(("ses:GetIdentityVerificationAttributes",), "*", asking),
        )

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Send from the stage's address."""
        return cls(Sender(runtime.of(AppSettings).email_sender, runtime.clock))

    def send(self, *, to: str, receiver: str, subject: str, text: str, event_id: str) -> None:
        """Send one e-mail.

        Parameters
        ----------
        to
            The address; it is told to SES and to nobody else.
        receiver
            Who that is, in what logs and dead letters say when it was not sent.

        Raises
        ------
        Permanent
            If the subject is more than a line.
        EmailNotSent
            If SES does not take it.
        """
        check_subject(subject)
        try:
            clients.ses().send_email(
                Source=self._sender.address,
                Destination={"ToAddresses": [to]},
                Message={"Subject": _content(subject), "Body": {"Text": _content(text)}},
                Tags=[{"Name": EVENT_ID_TAG, "Value": event_id}],
            )
        except ClientError as error:
            # Not chained: the text of SES's own error has the address.
            raise EmailNotSent(self._judge(failure_of(error), to, receiver)) from None

    def _judge(self, failure: Failure, to: str, receiver: str) -> Failure:
        """Return the failure as it is told: whose e-mail it was, and without an address."""
        told = re.sub(re.escape(to), "the address", failure.message, flags=re.IGNORECASE)
        kind = FailureKind.UNAVAILABLE if self._is_our_own_fault(failure) else failure.kind
        return replace(failure, kind=kind, message=f"{receiver}: {told}", fingerprint="")

    def _is_our_own_fault(self, failure: Failure) -> bool:
        """Return whether SES rejects the account's doing and not the e-mail: it has one code for both.

        That is a sender whom nobody verified and, in the sandbox, such a receiver. Only an e-mail from a sender who
        is known to be verified is at fault itself: what is taken for ours is tried again, what is not is dead.
        """
        if failure.type != "MessageRejected":
            return False
        return _NOT_VERIFIED.search(failure.message) is not None or not self._sender.is_verified()


def check_subject(subject: str) -> None:
    """Refuse what would add headers to an e-mail.

    Raises
    ------
    Permanent
        If it has line breaks or other control characters.
    """
    if not re.fullmatch(LINE, subject):
        raise Permanent("the subject of an e-mail has line breaks or control characters; nothing was sent")


def is_verified(sender: str) -> bool:
    """Ask SES whether it knows an address for ours, or a domain that it is in: a verified one sends for all below it.

    https://docs.aws.amazon.com/ses/latest/dg/creating-identities.html
    https://docs.aws.amazon.com/ses/latest/APIReference/API_GetIdentityVerificationAttributes.html
    """
    identities = [sender, *_domains_of(sender)]
    answer = clients.ses().get_identity_verification_attributes(Identities=identities)
    return any(each["VerificationStatus"] == "Success" for each in answer["VerificationAttributes"].values())


def _domains_of(address: str) -> list[str]:
    """Answer an address's domain and those above it, but for the last label alone: nobody verifies a whole TLD."""
    labels = address.rpartition("@")[2].split(".")
    return [".".join(labels[start:]) for start in range(len(labels) - 1)]


def _content(text: str) -> ContentTypeDef:
    return {"Data": text, "Charset": CHARSET}
