"""The clean-up: deletes rows whose time has passed, where DynamoDB's TTL has not come round yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from mailroom import clients, telemetry
from mailroom.clock import epoch_seconds
from mailroom.idempotency import IdempotencyRow
from mailroom.job import JobContext, job
from mailroom.needs import Need
from mailroom.outbox.table import DISCARDED, OutboxRow
from mailroom.row import Row
from mailroom.saga_row import SagaRow
from mailroom.schedule import Every
from mailroom.telemetry import LogEvent, Metric

ROWS_PER_PAGE = 500


@dataclass(frozen=True, slots=True)
class Ground:
    """Rows that are looked through: a table, or one partition of it."""

    model: type[Row]
    partition: str | None = None

    @property
    def name(self) -> str:
        """Names it in the memo and in log lines."""
        return (
            self.model.Meta.short_name if self.partition is None else f"{self.model.Meta.short_name}/{self.partition}"
        )

    @property
    def reading(self) -> str:
        """The IAM action that reads it."""
        return "dynamodb:Scan" if self.partition is None else "dynamodb:Query"

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the table's keys."""
        return self.model.key_names()


GROUNDS = (Ground(IdempotencyRow), Ground(OutboxRow, DISCARDED), Ground(SagaRow))
"""What of the machinery's own expires. Events that were sent are left to TTL alone, as are the application's tables;
those that wait or died, and sagas that are not finished, have no time that could pass."""


@job(
    schedule=Every(hours=1),
    needs=[Need(("dynamodb:DeleteItem", ground.reading), ground.model) for ground in GROUNDS],
    timeout=60,
)
def cleanup(work: JobContext) -> None:
    """Delete what has expired, going on where the last run stopped."""
    sweeper = _Sweeper(work)
    for ground in _from_where_it_stopped(work.memo):
        finished, deleted = sweeper.sweep(ground)
        telemetry.log(LogEvent.ROWS_CLEANED, table=ground.name, deleted=deleted, units=sweeper.units)
        telemetry.count(Metric.ROWS_CLEANED, deleted)
        if not finished:
            work.memo[_STOPPED_AT] = ground.name
            return
    work.memo.pop(_STOPPED_AT, None)


_STOPPED_AT = "stopped_at"


def _from_where_it_stopped(memo: dict[str, Any]) -> Iterator[Ground]:
    names = [ground.name for ground in GROUNDS]
    first = names.index(memo[_STOPPED_AT]) if memo.get(_STOPPED_AT) in names else 0
    yield from (*GROUNDS[first:], *GROUNDS[:first])


class _Sweeper:
    """Spends the run's capacity units: those of its reads and of its deletes, as DynamoDB counts them."""

    def __init__(self, work: JobContext) -> None:
        self.units = 0.0
        self._work = work
        self._budget = work.runtime.settings.cleanup_units
        self._now = {":now": {"N": str(epoch_seconds(work.now()))}}

    def sweep(self, ground: Ground) -> tuple[bool, int]:
        """Answer whether the end of it was reached, and how many rows were deleted."""
        deleted = 0
        while not self._must_stop():
            page = self._read(ground, self._work.memo.get(ground.name))
            for item in page["Items"]:
                if self._must_stop():
                    return False, deleted
                deleted += self._delete_if_still_expired(ground, item)
            self._work.memo[ground.name] = page.get("LastEvaluatedKey")
            if "LastEvaluatedKey" not in page:
                return True, deleted
        return False, deleted

    def _must_stop(self) -> bool:
        return self.units >= self._budget or self._work.out_of_time()

    def _read(self, ground: Ground, cursor: dict[str, Any] | None) -> dict[str, Any]:
        within: dict[str, Any] = {}
        if ground.partition is not None:
            within = {
                "KeyConditionExpression": "#partition = :partition",
                "ExpressionAttributeNames": {"#partition": ground.keys[0]},
            }
        read: Any = clients.dynamodb().scan if ground.partition is None else clients.dynamodb().query
        page: dict[str, Any] = read(
            TableName=ground.model.table_name(),
            FilterExpression="expires_at < :now",
            ExpressionAttributeValues={**self._now, **({":partition": {"S": ground.partition}} if within else {})},
            Limit=ROWS_PER_PAGE,
            ReturnConsumedCapacity="TOTAL",
            **within,
            **({"ExclusiveStartKey": cursor} if cursor else {}),
        )
        self.units += page["ConsumedCapacity"]["CapacityUnits"]
        return page

    def _delete_if_still_expired(self, ground: Ground, item: dict[str, Any]) -> bool:
        try:
            answer = clients.dynamodb().delete_item(
                TableName=ground.model.table_name(),
                Key={name: item[name] for name in ground.keys},
                ConditionExpression="expires_at < :now",
                ExpressionAttributeValues=self._now,
                ReturnConsumedCapacity="TOTAL",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            self.units += 1  # a refused write is charged too, and its answer does not say so
            return False  # renewed meanwhile
        self.units += answer["ConsumedCapacity"]["CapacityUnits"]
        return True
