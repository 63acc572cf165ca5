"""The one place that commits: a list of operations becomes one TransactWriteItems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from pynamodb.exceptions import CancellationReason, TransactWriteError
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action
from pynamodb.transactions import TransactWrite

from mailroom.failures import FailureKind, Unavailable, failure_of, failure_of_code
from mailroom.retry import retry
from mailroom.row import Row, RowStays, SubjectRow, UpdateWithoutVersion
from mailroom.runtime import Runtime

MAX_ITEMS = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""


_NEVER_TAKEN = frozenset({"ValidationError", "ItemCollectionSizeLimitExceeded"})
"""Cancellation reasons that come again at every attempt; the page of `MAX_ITEMS` lists all reasons."""


class TooManyItems(Exception):
    """A unit of work has more rows than one transaction takes; nothing was written."""


class SameItemTwice(Exception):
    """A unit of work writes one row twice; nothing was written."""


class CommitConflict(Unavailable):
    """Others kept writing the same rows at the same moment; nothing was written."""


class RowRefused(Exception):
    """DynamoDB cannot write a row as it would be: too large, or of another type; nothing was written.

    The failure carries the reason's code and says which row.
    """

    def __init__(self, row: Row, reason: CancellationReason) -> None:
        self.failure = failure_of_code(reason.code, f"{row.label}: {reason.message or 'no reason given'}")
        super().__init__(f"{reason.code}: {self.failure.message}")


class OperationKind(IntEnum):
    """In the order in which PynamoDB sends them, which is the order of the cancellation reasons."""

    CHECK = 0
    DELETE = 1
    PUT = 2
    UPDATE = 3


@dataclass(frozen=True, slots=True)
class Operation:
    """One row's part in a transaction.

    Parameters
    ----------
    refused
        What to raise when the condition does not hold.
    decides
        Raise it whatever else is refused with it: it says that somebody else has done the work meanwhile, and what
        that changed refuses the rest.

    Raises
    ------
    UpdateWithoutVersion
        If it would update a row that events are about.
    RowStays
        If it would delete a row that is not deletable.
    """

    kind: OperationKind
    row: Row
    refused: Exception
    condition: Condition | None = None
    actions: tuple[Action, ...] = field(default=())
    decides: bool = False

    def __post_init__(self) -> None:
        if self.kind is OperationKind.UPDATE and isinstance(self.row, SubjectRow):
            raise UpdateWithoutVersion(self.row)
        if self.kind is OperationKind.DELETE and not self.row.deletable:
            raise RowStays(self.row)

    @property
    def key(self) -> tuple[str, ...]:
        """What tells the row from others: table and key."""
        hash_key, range_key = self.row._get_hash_range_key_serialized_values()
        return (
            type(self.row).table_name(),
            *(str(part) for part in (hash_key, range_key) if part is not None),
        )

    def add_to(self, transaction: TransactWrite) -> None:
        """Add the operation to a transaction."""
        match self.kind:
            case OperationKind.CHECK:
                hash_key, range_key = self.row._get_hash_range_key_serialized_values()
                transaction.condition_check(type(self.row), hash_key, range_key, condition=self.condition)
            case OperationKind.DELETE:
                transaction.delete(self.row, condition=self.condition)
            case OperationKind.PUT:
                transaction.save(self.row, condition=self.condition)
            case OperationKind.UPDATE:
                transaction.update(self.row, actions=list(self.actions), condition=self.condition)


def write(
    operations: Sequence[Operation], runtime: Runtime, *, took_effect: Callable[[], bool] = lambda: False
) -> None:
    """Write all operations or none of them.

    A conflict, a throttled or a doubtful attempt is repeated under one `ClientRequestToken`, so that what took
    effect unseen takes effect once (for ten minutes, says the page of `MAX_ITEMS`).

    Parameters
    ----------
    took_effect
        Asked when it fails after an attempt whose outcome is unknown: whether that one was written after all.

    Raises
    ------
    TooManyItems, SameItemTwice
        Before anything is sent.
    CommitConflict
        If others kept writing the same rows.
    RowRefused
        If DynamoDB will never take a row as it would be.
    Exception
        The `refused` of an operation whose condition does not hold: of one that decides, else of the first; or what
        AWS answers.
    """
    ordered = sorted(operations, key=lambda operation: operation.kind)
    _check(ordered)
    token = str(UUID(int=runtime.random.getrandbits(128), version=4))
    in_doubt = False

    def attempt() -> None:
        nonlocal in_doubt
        try:
            _attempt(ordered, token)
        except Unavailable as error:
            in_doubt = in_doubt or not isinstance(error, CommitConflict)
            raise

    try:
        retry(
            attempt,
            backoff=runtime.timings.commit_backoff,
            clock=runtime.clock,
            random=runtime.random,
            on=Unavailable,
        )
    except Exception:
        if not (in_doubt and took_effect()):
            raise


def _check(operations: Sequence[Operation]) -> None:
    if len(operations) > MAX_ITEMS:
        raise TooManyItems(
            f"one unit of work has {len(operations)} rows and events; a transaction takes {MAX_ITEMS}. Split the work."
        )
    seen: set[tuple[str, ...]] = set()
    for operation in operations:
        key = operation.key
        if key in seen:
            raise SameItemTwice(f"one unit of work writes {key} twice; write each row once")
        seen.add(key)


def _attempt(operations: Sequence[Operation], token: str) -> None:
    connection = type(operations[0].row)._get_connection().connection
    try:
        with TransactWrite(connection=connection, client_request_token=token) as transaction:
            for operation in operations:
                operation.add_to(transaction)
    except TransactWriteError as error:
        raise _named(error, operations) from error


def _named(error: TransactWriteError, operations: Sequence[Operation]) -> Exception:
    reasons = [
        (operation, reason)
        for operation, reason in zip(operations, error.cancellation_reasons, strict=False)
        if reason is not None
    ]
    refused = [operation for operation, reason in reasons if reason.code == "ConditionalCheckFailed"]
    if refused:
        return max(refused, key=lambda operation: operation.decides).refused
    for operation, reason in reasons:
        if reason.code in _NEVER_TAKEN:
            return RowRefused(operation.row, reason)
    codes = {reason.code for _, reason in reasons}
    if codes & {"TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}:
        return CommitConflict(f"the rows of this unit of work are being written by others: {', '.join(sorted(codes))}")
    failure = failure_of(error)
    if failure.kind is FailureKind.UNAVAILABLE:
        return Unavailable(f"the commit did not come through: {failure.type}: {failure.message}")
    return error
