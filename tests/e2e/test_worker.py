"""`mailroom worker` as a process: real signals, a queue and tables of its own, and the deployed stage."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from local.account import CREDENTIALS
from local.api import Api
from local.confirmation import confirm_address
from local.mailbox import Mailbox
from local.stack import LocalStack
from local.waiting import eventually
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime

COMMAND = str(Path(sys.executable).parent / "mailroom")
BOUND = 30
"""Seconds after which what should have happened has not."""
UNTIL_IT_COMES_AGAIN = 16
"""The consumer's time-out of six seconds and twice the margin of five: see `Worker`."""


class WorkerProcess:
    """A process of `mailroom worker`, and the log that it writes."""

    def __init__(self, log: Path, environment: dict[str, str], *arguments: str) -> None:
        self._log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen([COMMAND, "worker", *arguments], stdout=out, stderr=out, env=environment)

    def lines(self, message: str) -> list[dict[str, Any]]:
        """Answer the log lines that say so."""
        texts = self._log.read_text().splitlines()
        lines = [json.loads(text) for text in texts if text.startswith("{") and text.endswith("}")]
        return [line for line in lines if line.get("message") == message]

    def until(self, message: str, times: int = 1) -> None:
        """Wait until the log says so, so often."""
        eventually(lambda: self._alive() and len(self.lines(message)) >= times, within=BOUND, what=message)

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def exit_code(self) -> int:
        """Wait until it has ended."""
        return self.process.wait(timeout=BOUND)

    @property
    def text(self) -> str:
        """All that it has written."""
        return self._log.read_text()

    def _alive(self) -> bool:
        assert self.process.poll() is None or self.lines("worker stopped"), self.text
        return True


class Place:
    """A queue with its dead-letter queue, a table of effects, a gate, and the processes that work there."""

    def __init__(self, stack: LocalStack, runtime: Runtime, folder: Path) -> None:
        self._sqs = stack.client("sqs")
        self._folder = folder
        self._processes: list[WorkerProcess] = []
        self._gate, self._open_gate = folder / "gate", -1
        self._mark = uuid4().hex[:8]
        self.queue = self._make_queue()
        self._effects = f"effects-{self._mark}"
        self._dynamodb = stack.client("dynamodb")
        self._dynamodb.create_table(
            TableName=self._effects,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        os.mkfifo(self._gate)
        self.environment = {
            **os.environ,
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": stack.endpoint_url,
            "PYTHONPATH": str(Path(__file__).parent),
            **runtime.settings.to_env(),
            "MAILROOM_STAGE": "local",
            "WORKER_APP_EFFECTS_TABLE": self._effects,
            "WORKER_APP_GATE": str(self._gate),
        }

    def start(self, *arguments: str, hold: str = "none") -> WorkerProcess:
        """Start a process; it waits at the gate in the messages with these numbers."""
        own = ("placing", "--application", "worker_app", "--queue-url", self.queue)
        return self.start_any({**self.environment, "WORKER_APP_HOLD": hold}, *own, *arguments)

    def start_any(self, environment: dict[str, str], *arguments: str) -> WorkerProcess:
        """Start a process that is ended with the test at the latest."""
        log = self._folder / f"worker-{len(self._processes)}.log"
        self._processes.append(WorkerProcess(log, environment, *arguments))
        return self._processes[-1]

    def send(self, count: int) -> list[str]:
        """Put events into the queue; answer their names."""
        names = [f"thing-{number}" for number in range(count)]
        entries = [{"Id": name, "MessageBody": self._message(name)} for name in names]
        assert len(self._sqs.send_message_batch(QueueUrl=self.queue, Entries=entries)["Successful"]) == count
        return names

    def open_gate(self) -> None:
        """Let everybody through from now on."""
        self._open_gate = os.open(self._gate, os.O_RDWR)

    def remove_gate(self) -> None:
        """Let those who come from now on through; who waits, waits."""
        self._gate.unlink()

    def depths(self) -> tuple[int, int]:
        """Answer how many messages are visible, and how many are not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self._sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def visible(self) -> int:
        """Answer how many messages are visible; when those that were handled are deleted is a matter of time."""
        return self.depths()[0]

    def effects(self) -> dict[str, int]:
        """Answer how often each event had its effect."""
        items = self._dynamodb.scan(TableName=self._effects, ConsistentRead=True)["Items"]
        return {item["id"]["S"]: int(item["times"]["N"]) for item in items}

    def end(self) -> None:
        """End whatever still runs."""
        for each in self._processes:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait(timeout=BOUND)
        if self._open_gate >= 0:
            os.close(self._open_gate)

    def _make_queue(self) -> str:
        dead = self._sqs.create_queue(QueueName=f"things-{self._mark}-dead")["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 10})
        attributes = {"RedrivePolicy": policy, "VisibilityTimeout": "60"}
        url: str = self._sqs.create_queue(QueueName=f"things-{self._mark}", Attributes=attributes)["QueueUrl"]
        return url

    def _message(self, name: str) -> str:
        event_id = f"01JDW3NDEK{self._mark.upper()}{name.removeprefix('thing-'):0>8}-03"
        payload = json.dumps({"name": name})
        return Envelope(event_id, "thing.placed", "test", None, "2030-01-01T00:00:00.000Z", payload).to_json()


@pytest.fixture
def places(stack: LocalStack, runtime: Runtime, tmp_path: Path) -> Iterator[Callable[[], Place]]:
    """Makes places; all that runs there is ended with the test."""
    made: list[Place] = []

    def make() -> Place:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Place(stack, runtime, folder))
        return made[-1]

    yield make
    for place in made:
        place.end()


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    return places()


signals = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)


@signals
def test_a_worker_that_waits_for_messages_ends_well(place: Place, number: signal.Signals) -> None:
    worker = place.start()
    worker.until("worker started")
    worker.tell(number)
    assert worker.exit_code() == 0, worker.text
    (line,) = worker.lines("worker stopped")
    assert (line["consumer"], line["handled"], line["failed"], line["handed_back"]) == ("placing", 0, 0, 0)
    place.send(1)
    assert place.depths() == (1, 0)


@signals
def test_at_the_third_of_ten__it_finishes_that_one_and_the_rest_is_there_for_others_at_once(
    place: Place, number: signal.Signals
) -> None:
    names = place.send(10)
    worker = place.start(hold="3")
    worker.until("waiting at the gate")
    assert place.visible() == 0
    worker.tell(number)
    eventually(lambda: place.visible() == 7, within=BOUND, what="seven are visible while the third is at work")
    place.open_gate()
    assert worker.exit_code() == 0, worker.text
    assert place.depths() == (7, 0)
    assert (len(place.effects()), set(place.effects().values())) == (3, {1})

    another = place.start()
    eventually(lambda: place.depths() == (0, 0), within=BOUND, what="another one handles the rest")
    another.tell(number)
    assert another.exit_code() == 0
    assert place.effects() == dict.fromkeys(names, 1)
    assert (another.lines("worker stopped")[0]["handled"], another.lines("message repeated")) == (7, [])


def _tell_twice(place: Place, worker: WorkerProcess) -> None:
    worker.tell(signal.SIGTERM)
    eventually(lambda: place.visible() == 7, within=BOUND)
    worker.tell(signal.SIGTERM)


def _tell(place: Place, worker: WorkerProcess) -> None:
    worker.tell(signal.SIGTERM)


def _kill(place: Place, worker: WorkerProcess) -> None:
    worker.tell(signal.SIGKILL)


def test_what_was_cut_off_comes_again__and_every_effect_happens_once(places: Callable[[], Place]) -> None:
    """By a second signal, past the grace, by a kill: side by side, since what was cut off takes its time to come."""
    cases = [(places(), _tell_twice, 1), (places(), _tell, 1), (places(), _kill, -9)]
    names = [place.send(10) for place, *_ in cases]
    workers = [place.start("--grace", "6.5", hold="3") for place, *_ in cases]
    for (place, cut_off, _), worker in zip(cases, workers, strict=True):
        worker.until("waiting at the gate")
        cut_off(place, worker)
    for (place, _, code), worker in zip(cases, workers, strict=True):
        assert worker.exit_code() == code, worker.text
        assert len(place.effects()) == 2, "the third had none yet"
        place.remove_gate()
    others = [place.start() for place, *_ in cases]
    for (place, *_), sent, other in zip(cases, names, others, strict=True):
        eventually(lambda place=place: place.depths() == (0, 0), within=UNTIL_IT_COMES_AGAIN + BOUND)
        other.tell(signal.SIGTERM)
        assert other.exit_code() == 0, other.text
        assert place.effects() == dict.fromkeys(sent, 1)


def test_several_messages_are_handled_side_by_side(place: Place) -> None:
    names = place.send(3)
    worker = place.start("--concurrency", "3", hold="1,2,3")
    worker.until("waiting at the gate", times=3)
    place.open_gate()
    eventually(lambda: place.depths() == (0, 0), within=BOUND)
    worker.tell(signal.SIGTERM)
    assert worker.exit_code() == 0, worker.text
    assert place.effects() == dict.fromkeys(names, 1)
    assert sum(line["handled"] for line in worker.lines("worker stopped")) == 3


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nobody"], "there is no consumer 'nobody'; there is placing"),
        (["placing"], "say where the queue of placing is"),
        (["placing", "--queue-url", "{queue}-other"], "cannot be read"),
        (["placing", "--queue-url", "{queue}", "--grace", "3"], "--grace must be longer"),
        (["placing", "--queue-url", "{queue}", "--stage", "prod"], "deploy the stage first"),
    ],
    ids=str,
)
def test_what_cannot_work_is_said_at_once(place: Place, arguments: Sequence[str], told: str) -> None:
    filled = [argument.format(queue=place.queue) for argument in arguments]
    environment = {**place.environment, "WORKER_APP_HOLD": "none"}
    worker = place.start_any(environment, *filled, "--application", "worker_app")
    assert worker.exit_code() == 2, worker.text
    assert told in worker.text
    assert "Traceback" not in worker.text


def test_a_worker_takes_the_place_of_the_deployed_consumer(
    place: Place, api: Api, mailbox: Mailbox, stack: LocalStack
) -> None:
    owner = f"owner-{uuid4().hex[:12]}"
    address = f"{owner}@example.com"
    assert api.put(f"/api/v1/owners/{owner}", {"email": address, "repo_quota": 100}).status == 200
    assert confirm_address(api, mailbox, owner, address).status == 204
    _mailroom("pause", "notifications")
    try:
        worker = place.start_any(dict(os.environ), "notifications", "--stage", "local")
        worker.until("worker started")
        assert api.post("/api/v1/repos", {"name": "tool", "owner_id": owner}, key=uuid4().hex).status == 201
        worker.until("message handled")
        (mail,) = mailbox.about_repositories(address)
        assert "tool" in mail.subject
        worker.tell(signal.SIGTERM)
        assert worker.exit_code() == 0, worker.text
    finally:
        _mailroom("resume", "notifications")


def _mailroom(*arguments: str) -> None:
    subprocess.run([COMMAND, *arguments, "--stage", "local"], check=True, capture_output=True, timeout=BOUND)
