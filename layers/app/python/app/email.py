"""E-mail by Amazon SES."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from botocore.exceptions import ClientError

from app.line import LINE
from app.settings import AppSettings
from mailroom import clients
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.needs import Need

if TYPE_CHECKING:
    from types_boto3_ses.type_defs import ContentTypeDef

    from mailroom.runtime import Runtime

EVENT_ID_TAG = "mailroom-event-id"
"""The SES message tag that carries the event's id, for whoever asks whether a mail went out twice."""
CHARSET = "UTF-8"
"""Without it SES takes nothing but ASCII. https://docs.aws.amazon.com/ses/latest/APIReference/API_Content.html"""


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


class Email:
    """Sends plain e-mails from one address."""

    def __init__(self, sender: str) -> None:
        self._sender = sender

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to send, and to ask whether we may send as who we are."""
        why_many = "SES checks the identities of the sender and, in its sandbox, of each receiver"
        asking = "asking for the state of an identity knows no resources"
        return (
            Need(("ses:SendEmail",), "ses:identity/*", why_many),
            Need(("ses:GetIdentityVerificationAttributes",), "*", asking),
        )

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Send from the stage's address."""
        return cls(runtime.of(AppSettings).email_sender)

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
                Source=self._sender,
                Destination={"ToAddresses": [to]},
                Message={"Subject": _content(subject), "Body": {"Text": _content(text)}},
                Tags=[{"Name": EVENT_ID_TAG, "Value": event_id}],
            )
        except ClientError as error:
            # Not chained: the text of SES's own error has the address.
            raise EmailNotSent(self._judge(failure_of(error), to, receiver)) from None

    def _judge(self, failure: Failure, to: str, receiver: str) -> Failure:
        """Answer the failure as it is told: whose e-mail it was, and without an address."""
        told = re.sub(re.escape(to), "the address", failure.message, flags=re.IGNORECASE)
        kind = FailureKind.UNAVAILABLE if self._is_our_own_fault(failure) else failure.kind
        return replace(failure, kind=kind, message=f"{receiver}: {told}", fingerprint="")

    def _is_our_own_fault(self, failure: Failure) -> bool:
        """Answer whether SES rejects the sender and not the e-mail: it has one code for both."""
        if failure.type != "MessageRejected":
            return False
        try:
            return not is_verified(self._sender)
        except ClientError:
            return False


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
