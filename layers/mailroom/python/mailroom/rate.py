"""A limit of what a consumer calls, over all of its invocations: so much in a while, and each message at its moment.

The messages of a batch take the next free moments, evenly spaced, by one update of one row. Moments that come soon
are waited for; a message for which there is none soon is handed back with an appointment, behind all that were handed
back before it. It takes a moment when it comes again; meanwhile those that are delivered for the first time line up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError
from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from mailroom import clients
from mailroom.clock import Clock, epoch_microseconds
from mailroom.failures import Unavailable, failure_of
from mailroom.needs import Need
from mailroom.retry import retry
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.sources.source import receives_of
from mailroom.telemetry import LogEvent, log

if TYPE_CHECKING:
    from types_boto3_dynamodb.type_defs import UpdateItemInputTypeDef

_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """So many messages in so many seconds, e.g. `Rate(14, per=1)`.

    Raises
    ------
    ValueError
        If either is nothing or less.
    """

    count: float
    per: float

    def __post_init__(self) -> None:
        if not (self.count > 0 and self.per > 0):
            raise ValueError(f"a rate is more than nothing, in more than no time: not {self.count} per {self.per} s")

    @property
    def interval(self) -> int:
        """The microseconds from one message to the next, rounded up."""
        return -int(-self.per * _MICROSECONDS // self.count)


DeclaredRate = Rate | Callable[[Runtime], Rate]
"""A rate, or how it is found in the settings."""


class RateRow(Row):
    """How far ahead the moments of one consumer are taken."""

    class Meta:
        short_name = "rates"

    consumer = UnicodeAttribute(hash_key=True)
    free_at = NumberAttribute()
    """The first moment that is free; microseconds since 1970, as the next one."""
    line_ends_at = NumberAttribute()
    """When the last of those that were handed back comes again."""
    taker = UnicodeAttribute()
    """A random name of the update that wrote it: by it an update that is sent again knows its own write."""


NEEDS = Need(("dynamodb:UpdateItem",), RateRow)
"""What keeping a rate takes."""


@dataclass(frozen=True, slots=True)
class Taken:
    """How far ahead moments are taken, as `RateRow` has it."""

    free_at: int = 0
    line_ends_at: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """When a message may go.

    Parameters
    ----------
    wait
        Seconds until then, from when it was given.
    handed_back
        Whether that is too long to be waited for, so that the message is to come again then.
    """

    wait: float
    handed_back: bool


def give(taken: Taken, rate: Rate, *, now: int, within: float, firsts: Sequence[bool]) -> tuple[Taken, list[Moment]]:
    """Return a moment for each message of a batch, and what is taken then.

    Parameters
    ----------
    now
        Microseconds since 1970.
    within
        Seconds for which a moment can be waited for.
    firsts
        Of each message whether it is delivered for the first time.
    """
    free_at, ends_at, last = max(taken.free_at, now), max(taken.line_ends_at, now), now + int(within * _MICROSECONDS)
    line = ends_at > last
    moments = []
    for first in firsts:
        handed_back = free_at > last or (first and line)
        if handed_back:
            ends_at = max(ends_at, free_at) + rate.interval
            at = ends_at
        else:
            at, free_at = free_at, free_at + rate.interval
        moments.append(Moment((at - now) / _MICROSECONDS, handed_back))
    return Taken(free_at, ends_at), moments


class Limit:
    """Keeps one consumer to its rate, in one process among others.

    Parameters
    ----------
    rate
        As the consumer declares it.
    """

    def __init__(self, rate: DeclaredRate, runtime: Runtime, *, consumer: str) -> None:
        self._rate = rate if isinstance(rate, Rate) else rate(runtime)
        self._runtime = runtime
        self._consumer = consumer
        self._known: Taken | None = None

    def moments(self, firsts: Sequence[bool], *, within: float) -> list[Moment]:
        """Take a moment for each message of a batch: see `give`.

        Where the row cannot be written all may go at once: what they call refuses those that are too many.
        """
        try:
            return retry(
                lambda: self._take(firsts, within),
                backoff=self._runtime.timings.commit_backoff,
                clock=self._runtime.clock,
                random=self._runtime.random,
                on=_TakenMeanwhile,
            )
        except Exception as error:
            log(LogEvent.RATE_NOT_KEPT, failure=failure_of(error), consumer=self._consumer)
            return [Moment(0, handed_back=False)] * len(firsts)

    def _take(self, firsts: Sequence[bool], within: float) -> list[Moment]:
        now = epoch_microseconds(self._runtime.clock.now())
        known = self._known
        wanted, moments = give(known or Taken(), self._rate, now=now, within=within, firsts=firsts)
        taker = f"{self._runtime.random.getrandbits(96):024x}"
        try:
            clients.dynamodb().update_item(**self._update(known, wanted, taker))
        except ClientError as error:
            if error.response["Error"]["Code"] != "ConditionalCheckFailedException":
                raise
            item: dict[str, Any] = error.response.get("Item", {})  # type: ignore[assignment]
            if item.get("taker") != {"S": taker}:
                self._known = Taken(int(item["free_at"]["N"]), int(item["line_ends_at"]["N"])) if item else None
                raise _TakenMeanwhile("another invocation took moments at once") from error
        self._known = wanted
        return moments

    def _update(self, known: Taken | None, wanted: Taken, taker: str) -> UpdateItemInputTypeDef:
        values = {":free": {"N": str(wanted.free_at)}, ":ends": {"N": str(wanted.line_ends_at)}, ":taker": {"S": taker}}
        condition = "attribute_not_exists(consumer)"
        if known is not None:
            condition = "free_at = :known_free AND line_ends_at = :known_ends"
            values[":known_free"] = {"N": str(known.free_at)}
            values[":known_ends"] = {"N": str(known.line_ends_at)}
        return {
            "TableName": RateRow.table_name(),
            "Key": {"consumer": {"S": self._consumer}},
            "UpdateExpression": "SET free_at = :free, line_ends_at = :ends, taker = :taker",
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }


class Turns:
    """The moments of one batch.

    Parameters
    ----------
    limit
        None if there is none: then each message goes at once.
    records
        The messages, in the order in which they go.
    deadline
        The `clock.monotonic()` until which messages may begin; half the time until then is for waiting.
    """

    def __init__(
        self, limit: Limit | None, records: Sequence[Mapping[str, Any]], clock: Clock, *, deadline: float
    ) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._moments: dict[str, Moment] = {}
        if limit is not None:
            firsts = [receives_of(each) == 1 for each in records]
            moments = limit.moments(firsts, within=max(0, deadline - self._began) / 2)
            self._moments = {each["messageId"]: moment for each, moment in zip(records, moments, strict=True)}

    def wait_for(self, message_id: str) -> float:
        """Wait until it is a message's turn; return the seconds after which it is to come again instead, or 0."""
        moment = self._moments.get(message_id)
        if moment is None:
            return 0
        left = self._began + moment.wait - self._clock.monotonic()
        if moment.handed_back:
            return max(1, ceil(left))
        if left > 0:
            self._clock.sleep(left)
        return 0


class _TakenMeanwhile(Unavailable):
    """What is taken changed since it was last seen."""
