"""Expected errors: what each is called to the operator, and the exit code that it ends with."""

from __future__ import annotations

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)
from pynamodb.exceptions import PynamoDBException

from mailroom.cli.local_stack import LocalStackDown
from mailroom.controls import ChangingNow, NothingToSwitch, UnknownPart
from mailroom.cursor import BadCursor
from mailroom.dead_letters.desk import UnknownSource
from mailroom.declarations import DeclarationError
from mailroom.deployment import NotDeployed
from mailroom.failures import Unavailable, failure_of
from mailroom.saga_retry import NotRetried
from mailroom.schedule import ScheduleError
from mailroom.settings import SettingsError
from mailroom.sources.source import SourceRefused
from mailroom.trace import NothingKnown, UnknownSubject

PARTIAL, USAGE = 1, 2
"""Exit codes: not all of it was done; nothing was, since it was called wrongly or nothing is deployed."""


class UsageError(Exception):
    """Options that do not go together, or name what is not there."""


_USAGE = (
    UsageError,
    NotDeployed,
    LocalStackDown,
    UnknownSource,
    BadCursor,
    UnknownPart,
    UnknownSubject,
    DeclarationError,
    ScheduleError,
    SourceRefused,
)
_NO_ACCOUNT = (NoCredentialsError, NoRegionError, PartialCredentialsError, ProfileNotFound)
_REFUSED = (NothingKnown, NothingToSwitch, ChangingNow, NotRetried, Unavailable)
EXPECTED = (*_USAGE, *_REFUSED, SettingsError, BotoCoreError, ClientError, PynamoDBException)


def explain(error: Exception) -> tuple[str, int]:
    """Answer what an expected error says to the operator, and the exit code."""
    if isinstance(error, SettingsError):
        return f"this command and the deployed stage are of different versions: deploy again ({error})", USAGE
    if isinstance(error, _NO_ACCOUNT):
        return f"{error}: set AWS credentials and a region, e.g. by AWS_PROFILE and AWS_REGION", USAGE
    if isinstance(error, BotoCoreError | ClientError | PynamoDBException):
        failure = failure_of(error)
        return f"AWS did not do it: {failure.type}: {failure.message}{_call_of(error)}", PARTIAL
    return str(error.args[0] if error.args else error), USAGE if isinstance(error, _USAGE) else PARTIAL


def _call_of(error: Exception) -> str:
    cause = error.cause if isinstance(error, PynamoDBException) else error
    return f" (the call was {cause.operation_name})" if isinstance(cause, ClientError) else ""
