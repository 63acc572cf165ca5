"""What went wrong: one type for rows, logs, dead letters and callers, and one place that judges errors.

The judgement goes by an AWS error's code and never by its HTTP status, since throttling is a 400 too.
Source of the codes: each service's "Common errors" page and
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum

from botocore.exceptions import (
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
)
from botocore.exceptions import ConnectionError as AwsConnectionError  # no kin of Python's own
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pynamodb.exceptions import PynamoDBException

MAX_STORED_BYTES = 1024
"""How much room a failure takes in a row."""

_MAX_TYPE, _MAX_MESSAGE, _MAX_EXCERPT = 120, 700, 400
"""Bytes in a JSON text; an excerpt takes its room from the message."""


class FailureKind(StrEnum):
    """What a failure means for the work that failed."""

    TRANSIENT = "transient"
    """May go well next time: costs an attempt."""
    PERMANENT = "permanent"
    """Will never go well as it is: dead at once."""
    UNAVAILABLE = "unavailable"
    """Not this work's fault, the other side is down or refuses us: costs no attempt where one pauses."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something did not work.

    Parameters
    ----------
    kind
        What it means for the work.
    type
        The error's class or an AWS error code.
    message
        What a person reads. Cut to fit a row.
    fingerprint
        The same for failures that differ only in ids, numbers and quoted values; groups dead letters.
    retry_after
        Seconds to wait before the next attempt, where the other side said so.
    own
        Whether these are the application's own words, of a `Permanent` that it raised: callers may read them.
        What others say of us, AWS above all, names accounts, tables and roles.
    excerpt
        What the other side said, which may repeat what it got: for operators, in rows; no log line has it.
    """

    kind: FailureKind
    type: str
    message: str
    fingerprint: str = ""
    retry_after: float | None = None
    own: bool = False
    excerpt: str = ""

    def __post_init__(self) -> None:
        if not self.fingerprint:
            object.__setattr__(self, "fingerprint", _fingerprint(self.type, self.message))
        # JSON may write a character as six bytes; the cuts keep any failure below MAX_STORED_BYTES.
        object.__setattr__(self, "type", cut(self.type, _MAX_TYPE))
        object.__setattr__(self, "excerpt", cut(self.excerpt, _MAX_EXCERPT))
        room = _MAX_MESSAGE - (len(json.dumps(self.excerpt, ensure_ascii=False).encode()) + 11 if self.excerpt else 0)
        object.__setattr__(self, "message", cut(self.message, room))

    def to_json(self) -> str:
        """Write the failure as a row stores it, at most `MAX_STORED_BYTES` long."""
        stored = {name: value for name, value in asdict(self).items() if name != "excerpt" or value}
        return json.dumps(stored, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Failure:
        """Read what `to_json` wrote; what another version writes beside it is passed over."""
        stored = json.loads(text)
        known = {name: stored[name] for name in cls.__dataclass_fields__ if name in stored}
        return cls(**{**known, "kind": FailureKind(stored["kind"])})


class Permanent(Exception):
    """Raise it in application code for work that will never succeed as it is."""


class RetryAfter(Exception):
    """Raise it in application code to be called again, not before so many seconds have passed."""

    def __init__(self, seconds: float, message: str = "asked to be tried again later") -> None:
        super().__init__(message)
        self.seconds = seconds


class Unavailable(Exception):
    """The other side is down, throttles or refuses us: the work itself may be fine."""


NOT_THERE = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue", "InvalidAddress", "NoSuchBucket", "NotFound", "NotFoundException",
        "QueueDoesNotExist", "ResourceNotFoundException",
    }
)  # fmt: skip
"""Codes for: what we send to, or read, is not there (yet, or any more)."""

DENIED = frozenset(
    {
        "AccessDenied", "AccessDeniedException", "AuthFailure", "AuthorizationError", "InvalidAccessKeyId",
        "InvalidClientTokenId", "InvalidSecurity", "KMS.AccessDeniedException", "KMSAccessDenied",
        "KMSAccessDeniedException", "KmsAccessDenied", "NotAuthorized", "NotAuthorizedException", "OptInRequired",
        "SignatureDoesNotMatch", "UnrecognizedClientException",
    }
)  # fmt: skip
"""Codes for: the other side knows us too little, until somebody mends keys, grants or policies."""

REFUSED_BY_POLICY = frozenset({"NotAuthorizedForDetailTypeException", "NotAuthorizedForSourceException"})
"""Codes for: a bus's policy does not let us publish events of this type, or from this source.
https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsResultEntry.html"""

_UNAVAILABLE = (
    NOT_THERE
    | DENIED
    | REFUSED_BY_POLICY
    | {
        # Throttling
        "BandwidthLimitExceeded", "LimitExceededException", "PriorRequestNotComplete",
        "ProvisionedThroughputExceeded", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
        "RequestThrottled", "RequestThrottledException", "SlowDown", "Throttled", "ThrottledException", "Throttling",
        "ThrottlingError", "ThrottlingException", "ThrottlingReason", "TooManyRequestsException",
        "OverLimit", "KMSThrottling", "KmsThrottled", "KMS.ThrottlingException", "429",
        # The service itself
        "InternalError", "InternalException", "InternalFailure", "InternalServerError", "InternalServiceError",
        "ServiceUnavailable", "ServiceUnavailableException", "TransactionInProgressException", "RequestTimeout",
        "RequestTimeoutException", "ConcurrentModificationException",
        "500", "502", "503", "504",  # what botocore makes of an answer that is not the service's own
        # The key that it encrypts with
        "KMSDisabled", "KMSInvalidState", "KMSNotFound", "KMSOptInRequired",
        "KmsDisabled", "KmsInvalidKeyUsage", "KmsInvalidState", "KmsNotFound", "KmsOptInRequired",
        # Us, as the other side sees us: clock, sessions, policies
        "ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "InvalidSignatureException",
        "InvalidToken", "RequestTimeTooSkewed", "MissingAuthenticationToken",
        "RequestExpired",
        "AccountSendingPausedException", "AccountSuspendedException", "ConfigurationSetDoesNotExist",
        "ConfigurationSetSendingPausedException", "MailFromDomainNotVerifiedException", "SendingPausedException",
    }
)  # fmt: skip

_PERMANENT = frozenset(
    {
        "InvalidArgument", "InvalidMessageContents", "InvalidParameter", "InvalidParameterException",
        "InvalidParameterValue", "ItemCollectionSizeLimitExceeded", "ItemCollectionSizeLimitExceededException",
        "MalformedDetail", "MessageRejected", "MessageTooLong", "ParamValidationError", "ParameterValueInvalid",
        "SerializationException", "ValidationError", "ValidationException",
    }
)  # fmt: skip

_UNREACHABLE = (
    Unavailable,
    ConnectionError, TimeoutError, AwsConnectionError, HTTPClientError, IncompleteReadError,
    CredentialRetrievalError, NoCredentialsError, PartialCredentialsError,
)  # fmt: skip


def failure_of(error: BaseException) -> Failure:
    """Judge an error: what it means for the work during which it was raised."""
    if isinstance(known := getattr(error, "failure", None), Failure):
        return known
    if isinstance(error, RetryAfter):
        return Failure(FailureKind.TRANSIENT, _name(error), str(error), retry_after=error.seconds)
    if isinstance(error, PynamoDBException) and error.cause is not None:
        return failure_of(error.cause)
    if isinstance(error, ClientError):
        details = error.response.get("Error", {})
        return failure_of_code(details.get("Code", "Unknown"), details.get("Message", str(error)))
    return Failure(_kind_of(error), _name(error), _describe(error), own=isinstance(error, Permanent))


def failure_of_code(code: str, message: str) -> Failure:
    """Judge an AWS error code, of a whole call or of one entry of a batch."""
    kind = FailureKind.TRANSIENT
    if code in _UNAVAILABLE:
        kind = FailureKind.UNAVAILABLE
    elif code in _PERMANENT:
        kind = FailureKind.PERMANENT
    return Failure(kind, code, message)


def _kind_of(error: BaseException) -> FailureKind:
    if isinstance(error, Permanent | ValidationError | ParamValidationError):
        return FailureKind.PERMANENT
    return FailureKind.UNAVAILABLE if isinstance(error, _UNREACHABLE) else FailureKind.TRANSIENT


def _name(error: BaseException) -> str:
    return type(error).__name__


def _describe(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        # Pydantic's own text repeats the input, and payloads stay out of logs and rows.
        return "; ".join(
            f"{'.'.join(map(str, problem['loc'])) or 'body'}: "
            + (problem["type"] if problem["type"] in _TELLS_THE_INPUT else message_of(problem))
            for problem in error.errors(include_input=False)
        )
    return str(error) or _name(error)


def message_of(problem: ErrorDetails) -> str:
    """Return what pydantic says is wrong; of an error that a validator of ours raised, its own words."""
    return problem["msg"].removeprefix("Value error, ")


_TELLS_THE_INPUT = frozenset({"union_tag_invalid"})
"""Pydantic's errors whose message itself repeats the input: https://docs.pydantic.dev/latest/errors/validation_errors/"""


def cut(text: str, size: int) -> str:
    """Return as much of a text as takes so many bytes in a JSON text, with a mark where it was cut off."""
    text = _storable(text)
    if _stored_size(text) <= size:
        return text
    while _stored_size(text) > size - 3:
        text = text[: int(len(text) * 0.9)]
    return text + "…"


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _stored_size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())


_VARIABLE_PARTS = re.compile(
    r"""
    (?<!\w)'.*?(?:'(?!\w)|$)              # a quoted value, but no apostrophe; it may have been cut off
    | "[^"]*(?:"|$)
    | (?<![\w/-])[\w/-]*\d[\w/.:-]*       # an id or a number
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_TELLING = 4096
"""Characters of a message that tell what kind of failure it is."""


def _fingerprint(error_type: str, message: str) -> str:
    pattern = _VARIABLE_PARTS.sub("*", message[:_TELLING])
    return hashlib.sha256(_storable(f"{error_type}|{pattern}").encode()).hexdigest()[:12]
