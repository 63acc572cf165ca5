"""How many webhooks one process delivers a second, beside a loop that POSTs the same bytes by urllib3.

The receiver is a process of its own on this machine, speaks plain HTTP and answers at once; AWS is a set of prepared
bytes below botocore's HTTP layer. Both sides send one request at a time.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import urllib3
from canned import SETTINGS, CannedAws, apart, asked_for_less, log_to_nowhere, make_console, ratios, response
from rich.console import Console
from rich.table import Table

from app.consumers.webhook_deliveries import webhook_deliveries
from app.deliveries import WebhookDelivery
from app.settings import AppSettings
from mailroom.clock import SystemClock, timestamp
from mailroom.consumer_edge import ConsumerEdge
from mailroom.outbox.event import Envelope, payload_of
from mailroom.row import bind
from mailroom.runtime import Runtime
from mailroom.sources.sqs import SqsSource
from mailroom.testing import LambdaContext

OURS, ANEW, KEPT = "this consumer", "urllib3, a connection for each", "urllib3, one connection kept"
BODY = '{"type":"repo.created","timestamp":"2030-01-01T00:00:00.000Z","data":{"repo_id":"1","name":"tool"}}'
APP_SETTINGS = AppSettings(
    email_sender="sender@example.com",
    reports_bucket="reports",
    **{field: short for short, field in AppSettings.table_fields().items()},
)


class _Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    def log_message(self, *_: object) -> None: ...


def _serve(ready: Connection) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Receiver)
    ready.send(server.server_address[1])
    server.serve_forever()


@contextmanager
def receiver() -> Iterator[str]:
    """Run a receiver in a process of its own inside the block."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/in"
    finally:
        process.terminate()
        process.join()


def this_consumer(url: str) -> Callable[[], Any]:
    """Make the act of delivering once, as Lambda has the consumer do it."""
    webhook = {
        "id": {"S": "01JDW3QXK8R2V5N4M1T7B9C0DE"},
        "owner_id": {"S": "o"},
        "url": {"S": url},
        "events": {"SS": ["repo.created"]},
        "created_at": {"S": "2030-01-01T00:00:00.000Z"},
        "version": {"N": "1"},
    }
    secret = {
        "VersionId": "00000000-0000-0000-0000-000000000001",
        "CreatedDate": 1893456000,
        "SecretString": json.dumps({"seed": "s" * 64}),
    }
    aws = CannedAws(
        {
            "UpdateItem": response({}),
            "GetItem": response({"Item": webhook}),
            "GetSecretValue": response(secret),
            "TransactWriteItems": response({}),
        }
    )
    aws.connect("dynamodb", "sqs", "secretsmanager")
    settings = SETTINGS.model_copy(update={"outbound_networks": "127.0.0.0/8"})
    bind(settings, APP_SETTINGS)
    queue = SqsSource("https://sqs.us-east-1.amazonaws.com/123456789012/bench")
    edge = ConsumerEdge(webhook_deliveries, Runtime(settings), queue)
    batch = {"Records": [_record()]}

    def deliver() -> None:
        answer = edge.handle(batch, LambdaContext())
        assert answer == {"batchItemFailures": []}, answer

    return deliver


def _record() -> dict[str, Any]:
    part = WebhookDelivery(webhook_id="01JDW3QXK8R2V5N4M1T7B9C0DE", event_id="01JDW3NDEKTSV4RRFFQ69G5FAV-03", body=BODY)
    now = SystemClock().now()
    event = Envelope(
        f"{part.event_id}/{part.webhook_id}", part.type, "bench", "repos/1", timestamp(now), payload_of(part)
    )
    return {
        "messageId": "1",
        "receiptHandle": "1",
        "body": event.to_json(),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "ApproximateFirstReceiveTimestamp": str(int(now.timestamp() * 1000)),
        },
        "eventSource": "aws:sqs",
    }


def by_urllib3(url: str, *, keep: bool) -> Callable[[], Any]:
    """Make the act of one POST; `keep` keeps the connection for the next one, which no delivery of ours does."""
    pool = urllib3.PoolManager(retries=False)
    headers = {"content-type": "application/json", **({} if keep else {"connection": "close"})}

    def post() -> None:
        assert pool.request("POST", url, body=BODY.encode(), headers=headers).status == 204
        if not keep:
            pool.clear()

    return post


def measure(count: int, repetitions: int) -> dict[str, list[float]]:
    """Answer the seconds that each side takes for so many, again and again in turn."""
    with receiver() as url, log_to_nowhere():
        acts = {
            OURS: this_consumer(url),
            ANEW: by_urllib3(url, keep=False),
            KEPT: by_urllib3(url, keep=True),
        }
        seconds: dict[str, list[float]] = {name: [] for name in acts}
        names = list(acts)
        for _ in range(repetitions):
            names.reverse()
            for name in names:
                start = time.perf_counter()
                for _ in range(count):
                    acts[name]()
                seconds[name].append(time.perf_counter() - start)
        return seconds


def report(console: Console, count: int, repetitions: int) -> None:
    seconds = apart(measure, count, repetitions)
    console.print(f"[bold]Deliveries of {len(BODY)} bytes to a receiver on this machine, one after the other")
    table = Table()
    for heading in ("", "a second, median", "this consumer's time in multiples: least", "median", "most"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, each in seconds.items():
        rate = f"{count / sorted(each)[len(each) // 2]:.0f}"
        figures = ["", "", ""] if name == OURS else [f"{ratio:.2f}" for ratio in ratios(seconds, OURS, name)]
        table.add_row(name, rate, *figures)
    console.print(table)
    console.print(
        f"Wall time of {count} deliveries, {repetitions} times in turn, in one process. This consumer reads the\n"
        "message, takes the record, reads the webhook, signs, looks the host up, judges it and the connected peer,\n"
        "POSTs over a connection of its own, completes the record and logs: three AWS calls, whole but for the\n"
        "network. A bare loop does the POST alone. Against a receiver elsewhere the network is most of the time of\n"
        "each: what counts then is how many deliveries run at once (`max_concurrency`).\n"
    )


def main() -> None:
    count, repetitions = (50, 5) if asked_for_less(__doc__, "fewer deliveries, fewer runs") else (200, 15)
    report(make_console(), count, repetitions)


if __name__ == "__main__":
    main()
