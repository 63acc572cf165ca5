"""What ten thousand dead letters cost: AWS calls to list and to redrive them, and client CPU of the redrive.

AWS is a set of prepared bytes below botocore's HTTP layer: serialising, signing, parsing and checksums are real,
the network is not there. The bare transactions are the very TransactWriteItems calls that the redrive made,
recorded once and replayed with their parameters ready: nothing is read, decided, built or answered.
"""

from __future__ import annotations

import json
from collections import Counter
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
from mailroom.cli.dead_list import list_dead
from mailroom.cli.operator import Operator
from mailroom.clock import SystemClock, timestamp
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.filter import Filter
from mailroom.dead_letters.letter import OUTBOX, Deed
from mailroom.dead_letters.queue import LOOKED_AT
from mailroom.dead_letters.redrive import Plan, Redrive
from mailroom.deployment import Deployment
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope, payload_of
from mailroom.outbox.room import size_of
from mailroom.outbox.table import DEAD, OutboxRow

PAGE, READ_AT_ONCE = 100, 25
CONSUMERS = ("notifications", "webhooks")
DEPTHS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
FIRST_PAGE, DEAD_LIST, REDRIVE = "the outbox's first page", "`mailroom dead list`", "plan and redrive of all"
DEED = Deed(by="arn:aws:sts::123456789012:assumed-role/operators/bench", at="2030-01-01T00:00:00.000Z", why="mended")


def a_dead_row(position: int) -> dict[str, Any]:
    """Answer an event as the example's `POST /repos` makes it, dead; `position` is its place on a page."""
    repo_id = f"01JDW3NDEJ{PAGE_NUMBER}SR4RV{position:03d}"
    event = RepoCreated(repo_id=repo_id, name="payments-reconciliation", owner_id="01JDVZK8W4T5F1QH2M7XN9RCAB")
    now = timestamp(SystemClock().now())
    envelope = Envelope(
        id=f"01JDW3NDEK{PAGE_NUMBER}00000{position:03d}-03",
        type=RepoCreated.type,
        source=SETTINGS.source,
        subject=f"repos/{repo_id}",
        time=now,
        payload=payload_of(event),
        traceparent=f"00-4bf92f3577b34da6a3ce929d0e0e{position + 1:04x}-00f067aa0ba9{position + 1:04x}-01",
    )
    row = OutboxRow.pending(envelope)
    row.partition, row.died_at, row.retry_count = DEAD, now, 5
    row.failure = Failure(FailureKind.TRANSIENT, "InternalFailure", "an internal failure; try again").to_json()
    item: dict[str, Any] = row.serialize()
    return item


class CannedDeath(CannedAws):
    """AWS with so many dead events, and consumers at which nothing fails.

    Like DynamoDB, it gives a cursor with a full page even if nothing comes after it.
    """

    def __init__(self, letters: int) -> None:
        super().__init__(
            {
                "Query": self._query,
                "BatchGetItem": self._batch_get,
                "TransactWriteItems": response({}),
                "GetQueueAttributes": response({"Attributes": dict.fromkeys(DEPTHS, "0")}),
            }
        )
        self.pages = letters // PAGE
        items = [a_dead_row(position) for position in range(PAGE)]
        self._page = json.dumps({"Items": items, "Count": PAGE, "ScannedCount": PAGE})[:-1]
        self._key = json.dumps({name: items[-1][name] for name in ("partition", "event_id")})
        self._reads = {
            start: json.dumps(
                {"Responses": {SETTINGS.outbox_table: items[start : start + READ_AT_ONCE]}, "UnprocessedKeys": {}}
            )
            for start in range(0, PAGE, READ_AT_ONCE)
        }

    def _query(self, request: bytes) -> Response:
        asked = json.loads(request)
        cursor = asked.get("ExclusiveStartKey")
        number = 0 if cursor is None else _place_of(cursor["event_id"]["S"])[0] + 1
        if "IndexName" in asked or number >= self.pages:
            return response({"Items": [], "Count": 0, "ScannedCount": 0})
        assert asked["Limit"] in {PAGE, LOOKED_AT}
        page = f'{self._page},"LastEvaluatedKey":{self._key}}}'
        return headed(page.replace(PAGE_NUMBER, f"{number:08d}").encode())

    def _batch_get(self, request: bytes) -> Response:
        keys = json.loads(request)["RequestItems"][SETTINGS.outbox_table]["Keys"]
        number, position = _place_of(min(key["event_id"]["S"] for key in keys))
        assert len(keys) == READ_AT_ONCE
        return headed(self._reads[position].replace(PAGE_NUMBER, f"{number:08d}").encode())


def _place_of(event_id: str) -> tuple[int, int]:
    return int(event_id[10:18]), int(event_id[23:26])


class Bench:
    """One process: a desk over so many dead letters, and their bare transactions."""

    def __init__(self, letters: int) -> None:
        self.letters = letters
        runtime = make_runtime()
        queues = {
            name: name for consumer in CONSUMERS for name in (consumer, f"{consumer}-dead", f"{consumer}-undelivered")
        }
        deployment = Deployment(stage="bench", queues=queues)
        self.desk = Desk(runtime, deployment)
        self.operator = Operator(runtime, deployment, as_json=True)
        self.aws, self.bare_aws = CannedDeath(PAGE), CannedDeath(PAGE)
        bare_clients = self.bare_aws.connect("dynamodb")
        self.aws.connect("dynamodb", "sqs")
        calls = recorded(self.redrive)  # whatever is done once per process is done here too
        self._transactions = ready([call for call in calls if call.operation == "TransactWriteItems"], bare_clients)
        assert len(self._transactions) == PAGE
        moved = [item["Put"]["Item"] for each in self._transactions for item in each.keywords["TransactItems"][1:]]
        assert max(map(size_of, moved)) <= 1024
        self.aws.pages = letters // PAGE

    def first_page(self) -> None:
        """Read the outbox's first page."""
        letters, cursor = self.desk.of(OUTBOX).page()
        assert (len(letters), cursor is None) == (PAGE, False)

    def listed(self) -> None:
        """Do what `mailroom dead list` does, once it knows the stage."""
        list_dead(self.operator, Filter(), source=None, cursor=None, limit=PAGE, retrying=False, only_groups=False)

    def everything(self) -> None:
        """Walk through all of the desk's view."""
        assert sum(1 for _ in self.desk.letters()) == self.letters

    def redrive(self) -> None:
        """Freeze a plan of all that is dead in the outbox and send it again."""
        plan = Plan.matching(self.desk, source=OUTBOX, keep=lambda _: True)
        assert sum(result.ok for result in Redrive(self.desk, plan, DEED).run()) == self.aws.pages * PAGE

    def bare(self) -> None:
        """Send as many transactions as there are letters."""
        for _ in range(self.letters // PAGE):
            for transaction in self._transactions:
                transaction()


def count_calls(letters: int) -> dict[str, tuple[Counter[str], int]]:
    """Count what each deed takes with so many letters there: AWS calls and write units."""
    with log_to_nowhere():
        bench = Bench(letters)
        deeds = {
            FIRST_PAGE: bench.first_page,
            DEAD_LIST: bench.listed,
            "all letters of every source": bench.everything,
            REDRIVE: bench.redrive,
        }
        recordings = {name: recorded(deed) for name, deed in deeds.items()}
    return {
        name: (Counter(call.operation for call in calls), sum(map(write_units, calls)))
        for name, calls in recordings.items()
    }


def compare_cpu(letters: int, repetitions: int) -> dict[str, list[float]]:
    """Redrive the letters again and again, through the desk and bare in turn, in a process of its own."""
    with log_to_nowhere():
        bench = Bench(letters)
        bench.bare()
        return cpu_in_turn({"redrive": bench.redrive, "bare": bench.bare}, repetitions)


def report_calls(console: Console, few: int, many: int) -> None:
    fewer, counted = apart(count_calls, few), apart(count_calls, many)
    console.print(f"[bold]AWS calls with so many dead letters in the outbox, and {len(CONSUMERS)} consumers without")
    table = Table()
    for heading in ("", f"{few:,}", f"{many:,}", f"of which, with {many:,}", "write units"):
        table.add_column(heading, justify="left" if heading[:1] in ("", "o") else "right")
    for deed, (calls, units) in counted.items():
        operations = ", ".join(f"{n:,} {operation}" for operation, n in sorted(calls.items()))
        table.add_row(deed, f"{fewer[deed][0].total():,}", f"{calls.total():,}", operations, f"{units:,}")
    console.print(table)
    redrive, units = counted[REDRIVE]
    reads_no_further = all(counted[deed][0]["Query"] == 1 for deed in (FIRST_PAGE, DEAD_LIST))
    console.print(
        f"A first page is one Query with `Limit` {PAGE}. `dead list` also asks each dead-letter queue how deep it is;\n"
        "finding the stage is not in the figure. A source's last Query finds its end: DynamoDB gives a cursor with a\n"
        "full page. A redriven letter takes a transaction of its own and its share of a Query by the plan and of a\n"
        f"BatchGetItem of {READ_AT_ONCE}: {redrive.total() / many:g} calls. Write units are those of rows below 1 KB: "
        f"{units / many:g} for each letter.\n"
        f"Target: a first page reads no further, however many there are: {met(reads_no_further)}.\n"
    )


def report_cpu(console: Console, letters: int, repetitions: int) -> None:
    seconds = apart(compare_cpu, letters, repetitions)
    console.print(f"[bold]Client CPU of a redrive of {letters:,} letters in multiples of their bare transactions")
    table = Table()
    for heading in ("runs of each", "least", "median", "most", "redrive µs/letter", "bare µs/letter"):
        table.add_column(heading, justify="right")
    figures = [f"{ratio:.2f}" for ratio in ratios(seconds, "redrive", "bare")]
    figures += [f"{min(seconds[side]) / letters * 1e6:.0f}" for side in ("redrive", "bare")]
    table.add_row(str(repetitions), *figures)
    console.print(table)
    console.print(
        "The redrive reads every letter twice, once for the plan and once as it is when its turn comes, adds to its\n"
        "history who did what and why, and answers what came of it. The bare side only sends the transactions, their\n"
        "parameters ready, through clients of the same settings, in the same process and in turn with the redrive.\n"
        "Neither has a network: with one, both would take more and the ratio would be smaller.\n"
    )


def main() -> None:
    quick = asked_for_less(__doc__, "a tenth of the letters")
    few, many, repetitions = (100, 1_000, 5) if quick else (1_000, 10_000, 3)
    console = make_console()
    report_calls(console, few, many)
    report_cpu(console, many, repetitions)


if __name__ == "__main__":
    main()
