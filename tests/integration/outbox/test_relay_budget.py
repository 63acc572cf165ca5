"""What a page of fresh events costs: AWS calls and write units, counted exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING, Any

import pytest

from app.events import RepoCreated
from app.repos import Repo
from mailroom import telemetry
from mailroom.clients import Call, observed
from mailroom.clock import timestamp
from mailroom.needs import Access
from mailroom.outbox.event import SHARDS, shard_of_subject
from mailroom.outbox.relay import Relay
from mailroom.outbox.room import size_of
from mailroom.outbox.sweep import sweep
from mailroom.outbox.table import OutboxRow, pending
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from mailroom.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from tests.integration.conftest import CallCounter

SHARD = 3
EVENTS = 100


class FullPagesGoOn:
    """Gives a cursor with a page that is exactly full, as AWS does and moto doesn't. It is a `CallObserver`."""

    def before(self, call: Call) -> None: ...

    def after(self, call: Call, answer: dict[str, Any]) -> None:
        if call.operation == "Query" and answer["Count"] == call.parameters.get("Limit"):
            last = answer["Items"][-1]
            answer.setdefault("LastEvaluatedKey", {name: last[name] for name in ("partition", "event_id")})


@pytest.fixture(autouse=True)
def full_pages_go_on() -> Iterator[None]:
    with observed(FullPagesGoOn()):
        yield


@pytest.fixture
def relay(runtime: Runtime) -> Relay:
    """A relay to EventBridge in its steady state: it has looked for the bus within the last minute."""
    relay = runtime.use(Relay)
    create_repos(runtime, 1)
    assert relay.drain(SHARD).sent == 1
    return relay


def create_repos(runtime: Runtime, how_many: int) -> None:
    """Commit new repositories whose events lie in the shard."""
    made = 0
    while made < how_many:
        with telemetry.traced(None, runtime.random):
            work = UnitOfWork(runtime, Access(writes=(Repo,), publishes=(RepoCreated,)))
            repo = Repo(work.new_id(), name="payments-reconciliation", owner_id=work.new_id())
            repo.created_at = timestamp(work.now())
            if shard_of_subject(repo.subject) != SHARD:
                continue
            work.save(repo)
            work.publish(RepoCreated(repo_id=repo.id, name=repo.name, owner_id=repo.owner_id), about=repo)
            work.commit()
            made += 1


class WriteUnits:
    """What writes to the outbox and the leases cost.

    A write is charged by the KB of the row, begun ones too; a delete by the row it removes; an update by the row as
    it is before or after it, whichever is larger; in a transaction each twice.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """

    def __init__(self) -> None:
        self.largest = 0
        self._rows: dict[str, int] = {}

    def of(self, call: Call) -> int:
        match call.operation:
            case "TransactWriteItems":
                puts = [entry["Put"] for entry in call.parameters["TransactItems"] if "Put" in entry]
                return sum(2 * self._put(put["Item"]) for put in puts if put["TableName"] == OutboxRow.table_name())
            case "BatchWriteItem":
                return sum(map(self._request, call.parameters["RequestItems"][OutboxRow.table_name()]))
            case "UpdateItem":
                return self._lease(call.parameters)
            case "Query" | "PutEvents":
                return 0
            case other:
                raise AssertionError(f"what does {other} write?")

    def _request(self, request: dict[str, Any]) -> int:
        if "PutRequest" in request:
            return self._put(request["PutRequest"]["Item"])
        key = request["DeleteRequest"]["Key"]
        return self._rows[key["partition"]["S"] + key["event_id"]["S"]]

    def _put(self, item: dict[str, Any]) -> int:
        size = size_of(item)
        self.largest = max(self.largest, size)
        units = self._rows[item["partition"]["S"] + item["event_id"]["S"]] = ceil(size / 1024)
        return units

    def _lease(self, parameters: dict[str, Any]) -> int:
        row = Row.tables["leases"].get(parameters["Key"]["name"]["S"], consistent_read=True).serialize()
        assert size_of(row) < 512, "so that it is below 1 KB before and after"
        return 1


def test_a_hundred_fresh_events_of_distinct_subjects_take_22_calls(
    runtime: Runtime, relay: Relay, calls: CallCounter
) -> None:
    create_repos(runtime, EVENTS)
    calls.calls.clear()
    assert relay.drain(SHARD).sent == EVENTS
    assert calls.counts == {
        "UpdateItem": 2,  # take the lease, give it back
        "Query": 2,  # the full page, and the empty one after it
        "PutEvents": EVENTS // 10,
        "BatchWriteItem": 2 * EVENTS // 25,
    }
    assert calls.counts.total() == 22


def test_looking_for_the_bus_adds_one_call_a_minute(
    runtime: Runtime, relay: Relay, calls: CallCounter, clock: ManualClock
) -> None:
    clock.advance(runtime.timings.bus_check_period)
    create_repos(runtime, 20)
    calls.calls.clear()
    relay.drain(SHARD)
    assert calls.counts["DescribeEventBus"] == 1


def test_an_event_below_1_kb_takes_four_write_units_and_its_share_of_a_lease__its_commit_included(
    runtime: Runtime, relay: Relay, calls: CallCounter
) -> None:
    calls.calls.clear()
    create_repos(runtime, EVENTS)
    relay.drain(SHARD)
    units = WriteUnits()
    per_event = sum(units.of(call) for call in tuple(calls.calls)) / EVENTS
    assert units.largest < 1024
    assert per_event == pytest.approx(2 + 1 + 1 + 2 / EVENTS)
    assert per_event <= 4.1


@pytest.mark.parametrize("sent_before", [0, EVENTS])
def test_a_sweep_over_empty_shards_reads_each_once__however_much_was_sent_before(
    runtime: Runtime, relay: Relay, calls: CallCounter, sent_before: int
) -> None:
    create_repos(runtime, sent_before)
    relay.drain(SHARD)
    calls.calls.clear()
    assert sweep(relay, runtime, deadline=60, out_of_time=lambda: False) == 0
    assert calls.counts == Counter(Query=SHARDS)
    partitions = [call.parameters["ExpressionAttributeValues"][":pending"]["S"] for call in calls.calls]
    assert sorted(partitions) == [pending(shard) for shard in range(SHARDS)]
