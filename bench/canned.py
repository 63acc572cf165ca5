"""What the benchmarks share: an AWS of prepared bytes, calls recorded and replayed, and client CPU taken in turn."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any
from zlib import crc32

import botocore
from botocore.awsrequest import AWSResponse
from rich.console import Console

from mailroom import clients
from mailroom.clients import Call, observed
from mailroom.row import bind
from mailroom.runtime import Runtime
from mailroom.settings import Settings

Response = tuple[int, dict[str, str], bytes]
Answer = Response | Callable[[bytes], Response]

PAGE_NUMBER = "@" * 8
"""Stands in a page's bytes for its number, so that a page costs one replacement and no memory of its own."""
SETTINGS = Settings(
    stage="bench",
    auth="none",
    source="com.example.repos",
    publisher_url="eventbridge://bus",
    cleanup_units=5_000,
    outbound_networks="none",
    signing_secret="signing",  # noqa: S106 - its name
    **{field: short for short, field in Settings.table_fields().items()},
)


class CannedAws:
    """Answers AWS calls with prepared bytes below botocore's HTTP layer.

    Serialising, signing, parsing and checksums are real; the network is not there.

    Parameters
    ----------
    answers
        What each operation is answered with, or what answers the body of its request.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.answers = dict(answers)
        self.counts: Counter[str] = Counter()

    def connect(self, *services: str) -> dict[str, Any]:
        """Make this process's clients anew, let every call of them be answered here, and answer them by service."""
        os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_DEFAULT_REGION="us-east-1")  # noqa: S106 - signs for no one
        clients.forget()
        return {service: self.client(service) for service in services}

    def client(self, service: str, *region: str) -> Any:
        """Answer a client of this process, every call of which is answered here."""
        client = getattr(clients, service)(*region)
        client.meta.events.register_first("before-send", self._answer, unique_id=id(self))
        return client

    def _answer(self, request: Any, event_name: str, **_: Any) -> AWSResponse:
        operation = event_name.rpartition(".")[2]
        self.counts[operation] += 1
        answer = self.answers[operation]
        status, headers, body = answer(request.body) if callable(answer) else answer
        return AWSResponse(request.url, status, headers, _Body(body))  # type: ignore[arg-type]


class _Body:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        return [self._body]


def response(answer: Mapping[str, Any], status: int = 200) -> Response:
    """Prepare a response whose body is JSON."""
    return headed(json.dumps(answer).encode(), status)


def headed(body: bytes, status: int = 200) -> Response:
    """Prepare a response of these bytes."""
    headers = {
        "Server": "Server",
        "Date": "Tue, 01 Jan 2030 00:00:00 GMT",
        "Content-Type": "application/x-amz-json-1.0",
        "Content-Length": str(len(body)),
        "Connection": "keep-alive",
        "x-amzn-RequestId": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABCDEF",
        "x-amz-crc32": str(crc32(body)),
    }
    return status, headers, body


def make_runtime() -> Runtime:
    """Make a runtime, with the tables' names bound."""
    bind(SETTINGS)
    return Runtime(SETTINGS)


class _Recorder:
    """Keeps the AWS calls that are made. It is a `CallObserver`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def before(self, call: Call) -> None:
        self.calls.append(call)

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


def recorded(act: Callable[[], Any]) -> list[Call]:
    """Answer the AWS calls that something makes."""
    recorder = _Recorder()
    with observed(recorder):
        act()
    return recorder.calls


def ready(calls: Sequence[Call], of: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """Answer calls ready to be sent by these clients, their parameters built."""
    return [partial(_method(of[call.service], call.operation), **call.parameters) for call in calls]


def _method(client: Any, operation: str) -> Any:
    names = {api: name for name, api in client.meta.method_to_api_mapping.items()}
    return getattr(client, names[operation])


def write_units(call: Call) -> int:
    """Answer what a call writes to tables, in write units: each row is smaller than the 1 KB that one unit covers.

    A write whose condition does not hold takes as much.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    match call.operation:
        case "TransactWriteItems":
            return 2 * len(call.parameters["TransactItems"])
        case "BatchWriteItem":
            return sum(map(len, call.parameters["RequestItems"].values()))
        case "PutItem" | "UpdateItem" | "DeleteItem":
            return 1
        case _:
            return 0


@contextmanager
def log_to_nowhere() -> Iterator[None]:
    """Let log lines and metrics be written, as in Lambda, but to the null device."""
    sys.stdout.flush()
    kept, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(null)


def apart(measure: Callable[..., Any], *arguments: Any) -> Any:
    """Measure in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, *arguments).result()


def cpu_in_turn(acts: Mapping[str, Callable[[], Any]], repetitions: int) -> dict[str, list[float]]:
    """Do each thing again and again, every time in the other order; answer seconds of this process's CPU by name."""
    seconds: dict[str, list[float]] = {name: [] for name in acts}
    names = list(acts)
    for _ in range(repetitions):
        names.reverse()
        for name in names:
            start = time.process_time()
            acts[name]()
            seconds[name].append(time.process_time() - start)
    return seconds


def ratios(seconds: Mapping[str, Sequence[float]], ours: str, theirs: str) -> tuple[float, float, float]:
    """Answer the least, the median and the most of one side's multiples of the other."""
    each = [mine / their for mine, their in zip(seconds[ours], seconds[theirs], strict=True)]
    return min(each), statistics.median(each), max(each)


def asked_for_less(about: str | None, less: str) -> bool:
    """Read the command line: `--quick`, whose help this is, or nothing."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--quick", action="store_true", help=less)
    return bool(parser.parse_args().quick)


def make_console() -> Console:
    """Make the console that figures are printed on, and print what they are taken on."""
    console = Console(width=120, highlight=False)
    console.print(
        f"Python {platform.python_version()}, botocore {botocore.__version__}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}\n"
    )
    return console


def met(holds: bool) -> str:
    """Say whether a target is met."""
    return "[green]met[/green]" if holds else "[bold red]not met[/bold red]"
