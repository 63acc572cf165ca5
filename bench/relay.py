"""What the relay costs: AWS calls and write units per event, client CPU and memory.

AWS is a set of prepared bytes below botocore's HTTP layer: serialising, signing, parsing and checksums are real,
the network is not there. The bare minimum sends the very calls that the relay made, recorded once and replayed
with their parameters ready: what it does not do is decide, build, order or log anything.
"""

from __future__ import annotations

import json
import resource
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from canned import (
    PAGE_NUMBER,
    SETTINGS,
    CannedAws,
    Response,
    apart,
    asked_for_less,
    cpu_in_turn,
    headed,
    log_to_nowhere,
    make_console,
    make_runtime,
    met,
    ratios,
    ready,
    recorded,
    response,
    write_units,
)
from rich.console import Console
from rich.table import Table

from app.events import RepoCreated
from mailroom import clients, telemetry
from mailroom.clients import Call
from mailroom.clock import SystemClock, timestamp
from mailroom.outbox.event import Envelope, payload_of
from mailroom.outbox.relay import Relay
from mailroom.outbox.room import size_of
from mailroom.outbox.table import OutboxRow
from mailroom.publishers.eventbridge import EventBridgePublisher
from mailroom.transaction import Operation, OperationKind, write

SHARD = 3
PAGE = 100
MOST_CALLS, MOST_UNITS, MOST_CPU, MOST_GROWTH = 22, 4.1, 1.5, 1.05


def an_event(position: int) -> Envelope:
    """Answer an event as the example's `POST /repos` makes it; `position` is its place on a page."""
    repo_id = f"01JDW3NDEJ{PAGE_NUMBER}SR4RV{position:03d}"
    event = RepoCreated(repo_id=repo_id, name="payments-reconciliation", owner_id="01JDVZK8W4T5F1QH2M7XN9RCAB")
    return Envelope(
        id=f"01JDW3NDEK{PAGE_NUMBER}00000{position:03d}-{SHARD:02d}",
        type=RepoCreated.type,
        source=SETTINGS.source,
        subject=f"repos/{repo_id}",
        time=timestamp(SystemClock().now()),
        payload=payload_of(event),
        traceparent=f"00-4bf92f3577b34da6a3ce929d0e0e{position + 1:04x}-00f067aa0ba9{position + 1:04x}-01",
    )


class CannedBacklog(CannedAws):
    """AWS with so many events pending.

    Like DynamoDB, it gives a cursor with a full page even if nothing comes after it.
    """

    def __init__(self, backlog: int) -> None:
        lease = {"token": {"N": "7"}, "clean": {"BOOL": True}, "memo": {"S": "{}"}}
        entries = [{"EventId": f"{n:08d}-1111-2222-3333-444455556666"} for n in range(10)]
        super().__init__(
            {
                "Query": self._query,
                "UpdateItem": response({"Attributes": lease}),
                "TransactWriteItems": response({}),
                "BatchWriteItem": response({"UnprocessedItems": {}}),
                "PutEvents": response({"FailedEntryCount": 0, "Entries": entries}),
                "DescribeEventBus": response({"Name": "bus"}),
            }
        )
        self.pages = backlog // PAGE
        items = [OutboxRow.pending(an_event(position)).serialize() for position in range(PAGE)]
        self._page = json.dumps({"Items": items, "Count": PAGE, "ScannedCount": PAGE})[:-1]
        self._key = json.dumps({name: items[-1][name] for name in ("partition", "event_id")})

    def _query(self, request: bytes) -> Response:
        cursor = json.loads(request).get("ExclusiveStartKey")
        number = 0 if cursor is None else int(cursor["event_id"]["S"][10:18]) + 1
        if number >= self.pages:
            return response({"Items": [], "Count": 0, "ScannedCount": 0})
        page = f'{self._page},"LastEvaluatedKey":{self._key}}}'
        return headed(page.replace(PAGE_NUMBER, f"{number:08d}").encode())


@dataclass(frozen=True, slots=True)
class Replay:
    """The calls of a drain of one page, ready to be sent."""

    acquire: Callable[..., Any]
    query: Callable[..., Any]
    page: Sequence[Callable[..., Any]]
    release: Callable[..., Any]


class Bench:
    """One process: the relay and the bare minimum, each with clients of the same configuration."""

    def __init__(self, backlog: int) -> None:
        self.runtime = make_runtime()
        publisher = EventBridgePublisher("bus", clock=self.runtime.clock, check_period=3600, refused_after=900)
        self.relay = Relay(self.runtime, publisher)
        self.bare_aws, self.aws = CannedBacklog(PAGE), CannedBacklog(PAGE)
        bare_clients = self.bare_aws.connect("dynamodb", "events")
        self.aws.connect("dynamodb", "events")
        self.drain()  # whatever is done once per process is done here
        self._replay = _replay(recorded(self.drain), bare_clients)
        self.bare()
        self.aws.pages = self.bare_aws.pages = backlog // PAGE

    def drain(self) -> int:
        """Let the relay take the whole backlog, as its Lambda handler does."""
        with telemetry.flushed_metrics():
            return self.relay.drain(SHARD).sent

    def bare(self) -> None:
        """Send the recorded calls, page after page."""
        replay = self._replay
        replay.acquire()
        cursor: dict[str, Any] = {}
        while True:
            answer = replay.query(**cursor)
            if not answer["Items"]:
                break
            for call in replay.page:
                call()
            cursor = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        replay.release()

    def textbook(self) -> None:
        """Read a hundred, publish one, mark one."""
        answer = clients.dynamodb().query(
            TableName=SETTINGS.outbox_table,
            IndexName="by_status",
            KeyConditionExpression="#status = :pending",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":pending": {"S": "pending"}},
            Limit=PAGE,
        )
        for item in answer["Items"]:
            entry = {"EventBusName": "bus", "Source": item["source"]["S"], "DetailType": item["type"]["S"]}
            clients.events().put_events(Entries=[{**entry, "Detail": item["payload"]["S"]}])  # type: ignore[typeddict-item]
            clients.dynamodb().update_item(
                TableName=SETTINGS.outbox_table,
                Key={"event_id": item["event_id"]},
                UpdateExpression="SET #status = :sent",
                ExpressionAttributeNames={"#status": "status"},
                ExpressionAttributeValues={":sent": {"S": "sent"}},
            )

    def commit(self) -> None:
        """Write a page of events to the outbox, each in its own transaction."""
        for position in range(PAGE):
            row = OutboxRow.pending(an_event(position))
            assert size_of(row.serialize()) + len(f"sent_at{timestamp(self.runtime.clock.now())}expires_at") + 9 <= 1024
            write([Operation(OperationKind.PUT, row, AssertionError())], self.runtime)

    def calls_of(self, act: Callable[[], Any]) -> tuple[Counter[str], float]:
        """Answer a page's calls by operation, and its write units per event, the event's own commit included."""
        calls = recorded(act)
        units = sum(map(write_units, [*calls, *recorded(self.commit)]))
        return Counter(call.operation for call in calls), units / PAGE


def _replay(calls: list[Call], of: dict[str, Any]) -> Replay:
    each = ready(calls, of)
    assert [n for n, call in enumerate(calls) if call.operation == "Query"] == [1, len(calls) - 2]
    return Replay(acquire=each[0], query=each[1], page=each[2:-2], release=each[-1])


def compare_cpu(backlog: int, repetitions: int) -> dict[str, list[float]]:
    """Drain a backlog again and again, by the relay and bare in turn, in a process of its own."""
    with log_to_nowhere():
        bench = Bench(backlog)
        seconds = cpu_in_turn({"relay": bench.drain, "bare": bench.bare}, repetitions)
        writes = [{**aws.counts, "UpdateItem": 0, "DescribeEventBus": 0} for aws in (bench.aws, bench.bare_aws)]
        extra = Counter(writes[0]) - Counter(writes[1])
    # But for the relay's one more page of warming up, and for how often a lease is renewed, the calls are the same.
    assert extra == {"Query": 2, "PutEvents": 10, "BatchWriteItem": 8}, extra
    return seconds


def peak_memory(backlog: int) -> tuple[int, int]:
    """Answer the peak of resident bytes after a page and after a backlog, in a process of its own."""

    def peak() -> int:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    with log_to_nowhere():
        bench = Bench(backlog)
        before = peak()
        assert bench.drain() == backlog
        return before, peak()


def count_calls() -> dict[str, tuple[Counter[str], float]]:
    """Count what a page of fresh events takes, by the relay and by the textbook loop."""
    with log_to_nowhere():
        bench = Bench(PAGE)
        return {"relay": bench.calls_of(bench.drain), "textbook": bench.calls_of(bench.textbook)}


def report_calls(console: Console) -> None:
    counted = apart(count_calls)
    (relay, relay_units), (textbook, textbook_units) = counted["relay"], counted["textbook"]
    console.print(f"[bold]AWS calls for {PAGE} fresh events of distinct subjects in one shard")
    table = Table()
    for heading in ("", "relay", "textbook loop"):
        table.add_column(heading, justify="right" if heading else "left")
    for operation in sorted(relay | textbook):
        table.add_row(operation, str(relay[operation]), str(textbook[operation]))
    table.add_section()
    table.add_row("AWS calls", str(relay.total()), str(textbook.total()))
    table.add_row("write units per event", f"{relay_units:.2f}", f"{textbook_units:.2f}")
    console.print(table)
    console.print(
        "The second Query finds the end: DynamoDB gives a cursor with a full page. Once a minute DescribeEventBus is\n"
        "added. Write units are those of rows below 1 KB, two for the event's part of its transaction included. The\n"
        "textbook loop also needs an index of what is pending: its three writes per event are not in the figure.\n"
        f"Target: at most {MOST_CALLS} calls: {met(relay.total() <= MOST_CALLS)}; "
        f"at most {MOST_UNITS} write units per event: {met(relay_units <= MOST_UNITS)}.\n"
    )


def report_cpu(console: Console, backlogs: dict[int, int]) -> None:
    console.print("[bold]Client CPU of the relay in multiples of the bare minimum")
    table = Table()
    for heading in ("events", "runs of each", "least", "median", "most", "relay µs/event", "bare µs/event"):
        table.add_column(heading, justify="right")
    medians = []
    for backlog, repetitions in backlogs.items():
        seconds = apart(compare_cpu, backlog, repetitions)
        least, median, most = ratios(seconds, "relay", "bare")
        medians.append(median)
        figures = [f"{ratio:.2f}" for ratio in (least, median, most)]
        figures += [f"{min(seconds[side]) / backlog * 1e6:.0f}" for side in ("relay", "bare")]
        table.add_row(f"{backlog:,}", str(repetitions), *figures)
    console.print(table)
    console.print(
        "The bare minimum sends the same calls with their parameters ready, through clients of the same settings, in\n"
        "the same process and in turn with the relay; the relay also writes a log line per event, to the null device.\n"
        "Neither has a network: with one, both would take more and the ratio would be smaller.\n"
        f"Target: median at most {MOST_CPU} x: {met(max(medians) <= MOST_CPU)}.\n"
    )


def report_memory(console: Console, small: int, large: int) -> None:
    console.print("[bold]Peak of resident memory, each backlog in a process of its own")
    table = Table()
    for heading in ("events", "after one page (MB)", "after the backlog (MB)"):
        table.add_column(heading, justify="right")
    peaks = {}
    for backlog in (small, large):
        before, peaks[backlog] = apart(peak_memory, backlog)
        table.add_row(f"{backlog:,}", f"{before / 1e6:.1f}", f"{peaks[backlog] / 1e6:.1f}")
    console.print(table)
    growth = peaks[large] / peaks[small]
    console.print(
        f"Target: flat, which is {large // small} times the backlog in at most {MOST_GROWTH} x the memory: "
        f"{growth:.3f} x: {met(growth <= MOST_GROWTH)}.\n"
    )


def main() -> None:
    small, large = (1_000, 10_000) if asked_for_less(__doc__, "a tenth of the events") else (10_000, 100_000)
    console = make_console()
    report_calls(console)
    report_cpu(console, {small: 7, large: 3})
    report_memory(console, small, large)


if __name__ == "__main__":
    main()
