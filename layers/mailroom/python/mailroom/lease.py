"""Leases: one holder at a time, and a fencing token that only grows.

Clocks may be off by `Timings.clock_skew` each. A taker waits until the lease has run out by its own clock; the
holder stops twice the skew earlier by its own. So however their clocks differ, two never hold at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from threading import RLock
from typing import Any

from botocore.exceptions import ClientError
from pynamodb.attributes import BooleanAttribute, NumberAttribute, UnicodeAttribute

from mailroom import clients, telemetry
from mailroom.checked_attributes import ObjectAttribute
from mailroom.clock import epoch_milliseconds
from mailroom.failures import Unavailable
from mailroom.needs import Need
from mailroom.reading import Unreadable, flaws_of, names_of, read, row_of
from mailroom.retry import retry
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.telemetry import LogEvent
from mailroom.transaction import Operation, OperationKind


class LeaseRow(Row):
    """A lease, held or free. Lease rows are never deleted: their token must not start again."""

    class Meta:
        short_name = "leases"

    deletable = False

    name = UnicodeAttribute(hash_key=True)
    token = NumberAttribute()
    holder = UnicodeAttribute()
    held_until = NumberAttribute()
    """Milliseconds since 1970; 0 when it was given back."""
    clean = BooleanAttribute()
    """Whether the last holder gave it back with nothing left to put right."""
    memo = ObjectAttribute(null=True)
    """What holders tell their successors; JSON."""


NEEDS = Need(("dynamodb:UpdateItem",), LeaseRow)
"""What holding a lease takes, and committing under it. No put and no delete: a lease's token must not start again."""


class LeaseUnreadable(Exception):
    """The row of a lease says not until when it is held, so that nobody can take it until somebody mends it."""


class LeaseLost(Exception):
    """The lease ran out or someone else holds it: stop, and write nothing more under it."""


class HeldLease:
    """A lease while it is held.

    Parameters
    ----------
    token
        Grows with every holder.
    was_clean
        Whether the holder before gave it back with nothing left to put right.
    memo
        What the holder before left; change it and it is stored at release.
    """

    def __init__(
        self, name: str, runtime: Runtime, *, holder: str, token: int, was_clean: bool, memo: dict[str, Any]
    ) -> None:
        self.name = name
        self.token = token
        self.was_clean = was_clean
        self.memo = memo
        self._holder = holder
        self._runtime = runtime
        self._changing = RLock()
        """A heartbeat renews from a thread of its own: what is given back meanwhile must not be taken again."""
        self._released = False

    def began(self, monotonic: float, held_until: int) -> None:
        """Note from when and until when it is held."""
        self._term = (monotonic, held_until)

    def remaining(self) -> float:
        """Answer the seconds for which it is safe to go on; not above 0 means stop.

        By the wall clock and by the monotonic one, whichever says less: the one can be set back, the other can
        stand still while a machine is frozen.
        """
        timings, clock = self._runtime.timings, self._runtime.clock
        since, held_until = self._term
        by_wall = held_until / 1000 - epoch_milliseconds(clock.now()) / 1000
        by_monotonic = timings.lease - (clock.monotonic() - since)
        return min(by_wall, by_monotonic) - 2 * timings.clock_skew

    def ensure(self) -> None:
        """Renew the lease when half of it is used up; a renewal that fails is tried again while the lease lasts.

        Raises
        ------
        LeaseLost
            If it ran out or someone else holds it.
        """
        with self._changing:
            self._stop_if_over()
            if self._runtime.clock.monotonic() - self._term[0] < self._runtime.timings.lease / 2:
                return
            try:
                self.renew()
            except LeaseLost:
                raise
            except Exception as error:
                telemetry.log_error(LogEvent.LEASE_NOT_RENEWED, error, lease=self.name)
                self._stop_if_over()

    def _stop_if_over(self) -> None:
        if self._released:
            raise LeaseLost(f"the lease {self.name} (token {self.token}) was given back")
        if self.remaining() <= 0:
            raise LeaseLost(f"the lease {self.name} (token {self.token}) ran out")

    def renew(self) -> None:
        """Hold the lease for another full term from now.

        Raises
        ------
        LeaseLost
            If someone else holds it, or it was given back: even a renewal that arrives late takes nothing then.
        """
        with self._changing:
            monotonic, until = self._runtime.clock.monotonic(), _until(self._runtime)
            self._change(
                "SET #held_until = :held_until",
                {":held_until": {"N": str(until)}, ":free": {"N": "0"}},
                also=" AND #held_until > :free",
            )
            self.began(monotonic, until)

    def release(self, *, clean: bool) -> None:
        """Give the lease back, and say whether the successor has something to put right.

        Raises
        ------
        LeaseLost
            If someone else holds it already.
        """
        with self._changing:
            self._released = True
            self._change(
                "SET #held_until = :held_until, #clean = :clean, #memo = :memo",
                {":held_until": {"N": "0"}, ":clean": {"BOOL": clean}, ":memo": {"S": json.dumps(self.memo)}},
            )

    def note(self, memo: Mapping[str, Any]) -> Operation:
        """Answer the operation that makes a transaction depend on this lease, and store a memo with what it writes."""
        actions = (LeaseRow.memo.set(json.dumps(memo)),)
        return Operation(OperationKind.UPDATE, LeaseRow(self.name), self._lost(), LeaseRow.token == self.token, actions)

    def _lost(self) -> LeaseLost:
        return LeaseLost(f"the lease {self.name} (token {self.token}) is someone else's; nothing was written")

    def _change(self, expression: str, values: dict[str, Any], *, also: str = "") -> None:
        names = {f"#{name}": name for name in re.findall(r"#(\w+)", expression)}

        def change() -> None:
            _update(
                self.name,
                expression,
                f"#token = :token AND #holder = :holder{also}",
                {**names, "#token": "token", "#holder": "holder"},
                {**values, ":token": {"N": str(self.token)}, ":holder": {"S": self._holder}},
            )

        try:
            _patiently(change, self._runtime)
        except _Refused as error:
            raise LeaseLost(f"the lease {self.name} (token {self.token}) is someone else's by now") from error


class Lease:
    """A lease by its name."""

    def __init__(self, name: str, runtime: Runtime) -> None:
        self._name = name
        self._runtime = runtime

    def acquire(self) -> HeldLease | None:
        """Take the lease; None if someone else holds it.

        Raises
        ------
        LeaseUnreadable
            If it is not known whether someone else does.
        """
        runtime = self._runtime
        holder = f"{runtime.random.getrandbits(96):024x}"
        monotonic, until = runtime.clock.monotonic(), _until(runtime)
        try:
            old = _patiently(lambda: self._take(holder, until), runtime)
            token, was_clean = (
                int(old.get("token", {"N": "0"})["N"]) + 1,
                old.get("clean", {"BOOL": True}).get("BOOL", False),
            )
        except _Refused as error:
            _check_term(self._name, error.item)
            # Ours after all: the first answer was lost, and the repetition met our own name. What was there
            # before is lost with it, so the successor's caution applies.
            if error.item.get("holder") != {"S": holder}:
                return None
            old, token, was_clean = error.item, int(error.item["token"]["N"]), False
        held = HeldLease(self._name, runtime, holder=holder, token=token, was_clean=was_clean, memo=_memo(old))
        held.began(monotonic, until)
        return held

    def _take(self, holder: str, until: int) -> dict[str, Any]:
        return _update(
            self._name,
            "SET #token = if_not_exists(#token, :zero) + :one, #holder = :holder, #until = :until, #clean = :unclean",
            "attribute_not_exists(#name) OR #until < :now",
            {
                "#name": "name",
                "#token": "token",
                "#holder": "holder",
                "#until": "held_until",
                "#clean": "clean",
            },
            {
                ":zero": {"N": "0"},
                ":one": {"N": "1"},
                ":holder": {"S": holder},
                ":until": {"N": str(until)},
                ":unclean": {"BOOL": False},
                ":now": {"N": str(epoch_milliseconds(self._runtime.clock.now()))},
            },
        )


class _Refused(Exception):
    def __init__(self, item: dict[str, Any]) -> None:
        super().__init__("the condition does not hold")
        self.item = item


class _Busy(Unavailable):
    """A transaction is checking the lease at this moment."""


def _until(runtime: Runtime) -> int:
    return epoch_milliseconds(runtime.clock.now() + timedelta(seconds=runtime.timings.lease))


def _check_term(name: str, item: dict[str, Any]) -> None:
    """Refuse to take a lease for held that nobody can ever take: a comparison of other types is never true."""
    flaws = flaws_of(LeaseRow, item, frozenset({"held_until"}))
    if flaws:
        raise LeaseUnreadable(f"the lease {name}: held_until {flaws['held_until']}; set it to the number 0")


def _memo(item: dict[str, Any]) -> dict[str, Any]:
    if not item:
        return {}
    found = read(LeaseRow, item, without=names_of(LeaseRow))
    if isinstance(found, Unreadable):
        found.tell()  # what it says is of use, and nothing depends on it
    written = row_of(found).memo
    memo: dict[str, Any] = json.loads(written) if written else {}
    return memo


def _patiently(change: Any, runtime: Runtime) -> Any:
    timings = runtime.timings
    return retry(change, backoff=timings.commit_backoff, clock=runtime.clock, random=runtime.random, on=_Busy)


def _update(
    name: str, expression: str, condition: str, names: dict[str, str], values: dict[str, Any]
) -> dict[str, Any]:
    try:
        answer = clients.dynamodb().update_item(
            TableName=LeaseRow.table_name(),
            Key={"name": {"S": name}},
            UpdateExpression=expression,
            ConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
            ReturnValues="ALL_OLD",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "ConditionalCheckFailedException":
            raise _Refused(error.response.get("Item", {})) from error  # type: ignore[arg-type]
        if code == "TransactionConflictException":
            raise _Busy(f"the lease {name} is being checked by a transaction") from error
        raise
    return dict(answer.get("Attributes", {}))
