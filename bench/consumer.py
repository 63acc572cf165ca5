"""What consuming a message costs beside Powertools' Batch and Idempotency as shipped: AWS calls, write units, CPU.

AWS is a set of prepared bytes below botocore's HTTP layer: serialising, signing, parsing and checksums are real,
the network is not there. All sides have clients of the same settings and take the same batches of ten.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from canned import (
    SETTINGS,
    CannedAws,
    Response,
    apart,
    asked_for_less,
    cpu_in_turn,
    log_to_nowhere,
    make_console,
    make_runtime,
    ratios,
    recorded,
    response,
    write_units,
)
from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from rich.console import Console
from rich.table import Table

from app.events import RepoCreated
from mailroom import clients
from mailroom.clients import Call
from mailroom.clock import SystemClock, epoch_milliseconds, timestamp
from mailroom.consumer import Consumer, consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.failures import failure_of
from mailroom.idempotency import FAILED, IdempotencyRow, record_id
from mailroom.outbox.event import Envelope, payload_of
from mailroom.outbox.room import size_of
from mailroom.row import Row
from mailroom.sources.sqs import SqsSource
from mailroom.testing import LambdaContext
from mailroom.unit_of_work import UnitOfWork

BATCH = 10
OURS, SAME_WORK, DOCUMENTED = "this edge", "same work", "as documented"
BY_EVENT, BY_MESSAGE = "powertools_json(body).id", "messageId"
"""What Powertools' records are keyed by: the event's id, as here; or the message's, as in its documentation."""
COMPLETED = {
    "id": {"S": "consumer/nothing#0"},
    "status": {"S": "COMPLETED"},
    "in_progress_until": {"N": "4070908800000"},
    "expires_at": {"N": "4070908800"},
    "expiration": {"N": "4070908800"},
    "response": {"S": "null"},
    "data": {"S": "null"},
}
"""A record, of either side, whose message was handled."""


class Tally(Row):
    """A row of an application."""

    class Meta:
        short_name = table_name = "tallies"

    id = UnicodeAttribute(hash_key=True)
    events = NumberAttribute(default=0)


@consumer(on=RepoCreated)
def nothing(event: RepoCreated, work: UnitOfWork) -> None:
    """Do nothing."""


@consumer(on=RepoCreated, writes=[Tally])
def one_row(event: RepoCreated, work: UnitOfWork) -> None:
    """Write a row of the application."""
    work.update(Tally(event.owner_id), [Tally.events.add(1)])


@consumer(on=RepoCreated)
def broken(*_: object) -> None:
    """Fail."""
    raise ConnectionError


def event_of(record: SQSRecord) -> RepoCreated:
    """Read the event, as this edge does for its handlers."""
    return RepoCreated.model_validate(record.json_body["data"])


def shipped_ignoring(record: SQSRecord) -> None:
    """Do nothing, not even look at the event."""


def shipped_nothing(record: SQSRecord) -> None:
    """Read the event and do nothing."""
    event_of(record)


def shipped_one_row(record: SQSRecord) -> None:
    """Write a row of the application."""
    Tally(event_of(record).owner_id).update([Tally.events.add(1)])


def shipped_broken(record: SQSRecord) -> None:  # noqa: ARG001 - Powertools names it
    """Fail."""
    raise ConnectionError


Handle = Callable[[dict[str, Any], Any], Any]


def ours(declaration: Consumer) -> Handle:
    """Make the edge of a consumer."""
    source = SqsSource("https://sqs.us-east-1.amazonaws.com/123456789012/bench")
    return ConsumerEdge(declaration, make_runtime(), source).handle


def shipped(function: Callable[[SQSRecord], None], key: str = BY_EVENT) -> Handle:
    """Make a batch handler as the documentation of Powertools does."""
    config = IdempotencyConfig(event_key_jmespath=key)
    store = DynamoDBPersistenceLayer(SETTINGS.idempotency_table, boto3_client=clients.dynamodb())
    once = idempotent_function(function, data_keyword_argument="record", config=config, persistence_store=store)
    processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)

    def handle(batch: dict[str, Any], context: Any) -> Any:
        config.register_lambda_context(context)
        return process_partial_response(batch, once, processor, context)

    return handle


def a_batch() -> dict[str, Any]:
    """Answer ten messages, each with the event that the example's `POST /repos` publishes."""
    now = SystemClock().now()
    return {"Records": [_message(position, now) for position in range(BATCH)]}


def _message(position: int, now: Any) -> dict[str, Any]:
    repo_id = f"01JDW3NDEJTSV4RRFFQ69G5F{position:02d}"
    event = RepoCreated(repo_id=repo_id, name="payments-reconciliation", owner_id="01JDVZK8W4T5F1QH2M7XN9RCAB")
    envelope = Envelope(
        id=f"01JDW3NDEKTSV4RRFFQ69G5F{position:02d}-03",
        type=RepoCreated.type,
        source=SETTINGS.source,
        subject=f"repos/{repo_id}",
        time=timestamp(now),
        payload=payload_of(event),
        traceparent=f"00-4bf92f3577b34da6a3ce929d0e0e{position:04x}-00f067aa0ba9{position + 1:04x}-01",
    )
    milliseconds = str(epoch_milliseconds(now))
    return {
        "messageId": f"059f36b4-87a3-44ab-83d2-6619755a7{position:03d}",
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a" * 6,
        "body": envelope.to_json(),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": milliseconds,
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": milliseconds,
        },
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:bench",
        "awsRegion": "us-east-1",
    }


def an_aws() -> CannedAws:
    """Make an AWS in which every message comes for the first time, and connect this process's clients to it."""
    aws = CannedAws(
        {
            "PutItem": response({}),
            "UpdateItem": response({"Attributes": {}}),
            "DeleteItem": response({}),
            "TransactWriteItems": response({}),
            "ChangeMessageVisibilityBatch": response({"Successful": [{"Id": "0"}]}),
        }
    )
    aws.connect("dynamodb", "sqs")
    return aws


def handled_before(request: bytes) -> Response:
    """Refuse to open a record: its message was handled."""
    values = json.loads(request)["ExpressionAttributeValues"]
    item = {**COMPLETED, "fingerprint": values.get(":fingerprint", {"S": ""})}
    return response({"__type": "com.amazonaws.dynamodb#ConditionalCheckFailedException", "Item": item}, status=400)


def index_units(call: Call) -> int:
    """Answer what a write of a record adds to the index of what fails: sparse, one entry while it does."""
    return int("failing" in call.parameters.get("ExpressionAttributeNames", {}).values())


@dataclass(frozen=True, slots=True)
class Cost:
    """What a message takes."""

    calls: dict[str, float]
    units: float

    def __str__(self) -> str:
        operations = ", ".join(f"{n:g} {operation}" for operation, n in sorted(self.calls.items()))
        return f"{sum(self.calls.values()):g} ({operations})"


def cost_of(handle: Handle, *, failed: int = 0) -> Cost:
    """Count what each message of a batch takes, of which so many are to come again."""
    batch, answers = a_batch(), []
    calls = recorded(lambda: answers.append(handle(batch, LambdaContext())))
    assert len(answers[0]["batchItemFailures"]) == failed, answers
    operations = Counter(call.operation for call in calls)
    units = sum(write_units(call) + index_units(call) for call in calls)
    return Cost({operation: n / BATCH for operation, n in operations.items()}, units / BATCH)


def count_costs() -> dict[str, tuple[Cost, Cost]]:
    """Count what messages take, by this edge and by Powertools as shipped, by what happens to them."""
    check_sizes()
    with log_to_nowhere():
        aws = an_aws()
        costs = {
            "handled, nothing to write": (cost_of(ours(nothing)), cost_of(shipped(shipped_nothing))),
            "handled, one row to write": (cost_of(ours(one_row)), cost_of(shipped(shipped_one_row))),
            "failed for the first time": (
                cost_of(ours(broken), failed=BATCH),
                cost_of(shipped(shipped_broken), failed=BATCH),
            ),
        }
        aws.answers |= {"PutItem": handled_before, "UpdateItem": handled_before}
        costs["delivered again once handled"] = (cost_of(ours(nothing)), cost_of(shipped(shipped_nothing)))
    return costs


def check_sizes() -> None:
    """See that the largest record here fits one write unit: that of a failure."""
    about = Envelope.from_json(a_batch()["Records"][0]["body"])
    failure = failure_of(ConnectionError()).to_json()
    record = IdempotencyRow(
        id=record_id("consumer/nothing", about.id),
        status=FAILED,
        in_progress_until=4070908800000,
        expires_at=SystemClock().now(),
        fingerprint="0" * 64,
        attempts=1,
        failure=failure,
        message_id="0" * 36,
        failing="nothing",
        failed_at=about.time,
        first_failed_at=about.time,
        event_id=about.id,
        type=about.type,
        subject=about.subject,
    )
    assert size_of(record.serialize()) <= 1024


def compare_cpu(batches: int, repetitions: int) -> dict[str, list[float]]:
    """Consume the same messages again and again, by each side in turn, each with clients of its own."""
    batch, context = a_batch(), LambdaContext()

    def consuming(handle: Handle) -> Callable[[], None]:
        def consume() -> None:
            for _ in range(batches):
                assert handle(batch, context) == {"batchItemFailures": []}

        handle(batch, context)  # whatever is done once per process is done here
        return consume

    with log_to_nowhere():
        an_aws()
        documented = consuming(shipped(shipped_ignoring, BY_MESSAGE))
        an_aws()
        same_work = consuming(shipped(shipped_nothing))
        an_aws()  # last, since this edge takes the process's clients at each call
        edge = consuming(ours(nothing))
        return cpu_in_turn({OURS: edge, SAME_WORK: same_work, DOCUMENTED: documented}, repetitions)


def report_costs(console: Console) -> None:
    console.print("[bold]AWS calls and write units per message")
    table = Table()
    for heading in ("", "side", "AWS calls", "write units"):
        table.add_column(heading, justify="right" if heading == "write units" else "left")
    for what, (edge, powertools) in apart(count_costs).items():
        table.add_row(what, OURS, str(edge), f"{edge.units:g}")
        table.add_row("", "Powertools", str(powertools), f"{powertools.units:g}", end_section=True)
    console.print(table)
    console.print(
        "Write units are those of rows below 1 KB: a transaction takes two for each row, a refused write one, and an\n"
        "entry in the index of what fails one. Powertools writes the row and then completes the record, each on its\n"
        "own: a crash in between runs the handler again. Here both are one transaction. Powertools forgets a failure;\n"
        "here the record keeps it, and the message's next delivery is put off. What a handler reads comes on top for\n"
        "both. Lambda itself receives and deletes the messages: that is in no figure.\n"
    )


def report_cpu(console: Console, batches: int, repetitions: int) -> None:
    seconds = apart(compare_cpu, batches, repetitions)
    console.print(f"[bold]Client CPU per message whose handler does nothing, in batches of {BATCH}")
    table = Table()
    for heading in ("this edge in multiples of Powertools", "runs of each", "least", "median", "most", "µs/message"):
        table.add_column(heading, justify="left" if heading.startswith("this") else "right")
    least_of = {side: min(each) / batches / BATCH * 1e6 for side, each in seconds.items()}
    for side in (SAME_WORK, DOCUMENTED):
        figures = [f"{ratio:.2f}" for ratio in ratios(seconds, OURS, side)]
        table.add_row(side, str(repetitions), *figures, f"{least_of[OURS]:.0f} / {least_of[side]:.0f}")
    console.print(table)
    console.print(
        f"Each run takes {batches * BATCH:,} messages, in turn with the other sides, in one process. `same work`: the\n"
        "records of Powertools are keyed by the event's id, and the handler reads the event. `as documented`: they\n"
        "are keyed by the message's id, so that an event that is published twice is handled twice, and the event is\n"
        "not read. This edge also writes a log line per message, to the null device. Neither side has a network:\n"
        "with one, both would take more and the ratio would be nearer to 1.\n"
    )


def main() -> None:
    batches, repetitions = (20, 7) if asked_for_less(__doc__, "fewer messages, fewer runs") else (50, 25)
    console = make_console()
    report_costs(console)
    report_cpu(console, batches, repetitions)


if __name__ == "__main__":
    main()
