"""The worker: what it holds it keeps, what it has done it deletes, and what it has not begun it gives back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from app.events import RepoCreated
from app.owners import Owner
from local.waiting import eventually
from mailroom.consumer import consumer
from mailroom.failures import Failure
from mailroom.outbox.event import Envelope, Part
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown
from mailroom.sources.memory import InMemorySource
from mailroom.sources.source import MAX_RECEIVES, Record, SourceRefused
from mailroom.testing import ManualClock, unavailable
from mailroom.unit_of_work import UnitOfWork
from mailroom.worker import Tally, Worker, work_until, workers_of
from tests.faults import Died, died, failing
from tests.log_lines import Lines

TIMEOUT = 20
BOUND = 20
"""Seconds after which a thread that should have ended fails its test."""


def do_nothing(event: RepoCreated) -> None:
    """Behave as the consumer under test does unless told otherwise."""


class Work:
    """What the consumer under test was called with, and what it does before its effect is committed."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.behave: Callable[[RepoCreated], None] = do_nothing


WORK = Work()


@consumer(on=RepoCreated, writes=[Owner], timeout=TIMEOUT)
def adding(event: RepoCreated, work: UnitOfWork) -> None:
    WORK.begun.append(event.name)
    work.update(Owner(event.name), [Owner.repo_count.add(1)])
    WORK.behave(event)


def effects() -> dict[str, int]:
    return {row.id: int(row.repo_count) for row in Owner.scan()}


def name_in(body: str) -> str:
    return str(json.loads(Envelope.from_json(body).payload)["name"])


def check_effects(names: list[str]) -> None:
    """See that nothing is deleted before its effect."""
    assert set(names) <= effects().keys()


class WatchedSource(InMemorySource):
    """A queue that tells what is asked of it, and can be told to misbehave."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.on_empty: Callable[[], Any] = lambda: None
        self.on_receive: Callable[[], Any] = lambda: None
        self.on_reply: Callable[[], Any] = lambda: None
        self.before_delete: Callable[[list[str]], Any] = check_effects
        self.fail_delete = self.fail_hide = False
        self.deletions: list[int] = []
        self.hidings: list[dict[str, float]] = []
        self._names: dict[str, str] = {}

    def put(self, *names: str) -> None:
        """Put events in, one for each name."""
        for name in names:
            payload = json.dumps({"repo_id": "1", "name": name, "owner_id": "owner-1"})
            event_id = f"01JDW3NDEKTSV4RRFFQ69G{name:0>4.4}-03"
            self.send(
                Envelope(event_id, "repo.created", "test", "repos/1", "2030-01-01T00:00:00.000Z", payload).to_json()
            )

    def receive(self, limit: int, *, wait: int, hidden: int) -> list[Record]:
        self.on_receive()
        records = super().receive(limit, wait=0, hidden=hidden)
        if not records:
            self.on_empty()
        self._names.update((each["receiptHandle"], name_in(each["body"])) for each in records)
        self.on_reply()
        return records

    def hide(self, seconds: Mapping[str, float]) -> dict[str, Failure]:
        self.hidings.append(dict(seconds))
        return dict.fromkeys(seconds, unavailable()) if self.fail_hide else super().hide(seconds)

    def delete(self, receipts: Sequence[str]) -> dict[str, Failure]:
        self.before_delete([self._names[receipt] for receipt in receipts])
        self.deletions.append(len(receipts))
        return dict.fromkeys(receipts, unavailable()) if self.fail_delete else super().delete(receipts)

    @property
    def visible_names(self) -> list[str]:
        return sorted(map(name_in, self.visible))

    @property
    def hidden_names(self) -> list[str]:
        return sorted(map(name_in, self.hidden))


@pytest.fixture
def source(runtime: Runtime, clock: ManualClock) -> WatchedSource:
    WORK.begun, WORK.behave = [], do_nothing
    return WatchedSource(clock)


@pytest.fixture
def worker(source: WatchedSource, runtime: Runtime) -> Worker:
    """A worker that stops when there is nothing left to receive."""
    (worker,) = workers_of(adding, runtime, source, count=1)
    source.on_empty = worker.stop
    return worker


def another(source: WatchedSource, runtime: Runtime) -> Worker:
    """Start a second one after the first."""
    (worker,) = workers_of(adding, runtime, source, count=1)
    source.on_empty = worker.stop
    return worker


def at(count: int, act: Callable[[], Any]) -> Callable[[RepoCreated], None]:
    """Make a behaviour that does something in the so-maniest message."""

    def behave(event: RepoCreated) -> None:
        if len(WORK.begun) == count:
            act()

    return behave


TEN = list("abcdefghij")


def test_every_message_has_its_effect__and_is_deleted_after_it(worker: Worker, source: WatchedSource) -> None:
    source.put(*TEN, "k", "l")
    worker.run()
    assert effects() == dict.fromkeys([*TEN, "k", "l"], 1)
    assert (source.visible, source.hidden) == ([], [])
    assert worker.tally == Tally(handled=12)


def test_a_message_that_failed_waits_as_the_edge_decided__and_the_others_are_deleted(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime
) -> None:
    def fail(event: RepoCreated) -> None:
        if event.name == "b":
            raise ValueError("no")

    WORK.behave = fail
    source.put("a", "b", "c")
    worker.run()
    assert source.hidden_names == ["b"]
    assert (worker.tally.handled, worker.tally.failed) == (2, 1)
    clock.advance(runtime.timings.consumer_backoff.base - 1)
    assert source.visible_names == []
    clock.advance(runtime.timings.consumer_backoff.base)
    assert source.visible_names == ["b"]


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        (None, []),
        ({}, []),
        ({"batchItemFailures": None}, []),
        ({"batchItemFailures": []}, []),
        ({"batchItemFailures": [{"itemIdentifier": "message-1"}]}, ["a"]),
        ({"batchItemFailures": [{"itemIdentifier": "who?"}]}, ["a"]),
        ("what?", ["a"]),
    ],
    ids=str,
)
def test_an_answer_means_what_it_means_to_lambda(
    answer: Any, left: list[str], source: WatchedSource, runtime: Runtime
) -> None:
    worker = Worker(source, lambda batch, context: answer, runtime, name="any")
    source.on_empty = worker.stop
    source.before_delete = lambda names: None
    source.put("a")
    worker.run()
    assert source.hidden_names == left


def test_a_handler_that_raises_deletes_nothing__and_the_worker_goes_on(
    source: WatchedSource, runtime: Runtime, logs: Lines
) -> None:
    called = []

    def handler(batch: dict[str, Any], context: Any) -> None:
        called.append(batch["Records"][0]["messageId"])
        raise RuntimeError("a bug")

    worker = Worker(source, handler, runtime, name="adding")
    source.on_empty = worker.stop
    source.put("a", "b")
    worker.run()
    assert called == ["message-1", "message-2"]
    assert source.hidden_names == ["a", "b"]
    lines = [line for line in logs() if line["message"] == "handler failed"]
    assert [(line["message_id"], line["exception_name"]) for line in lines] == [
        ("message-1", "RuntimeError"),
        ("message-2", "RuntimeError"),
    ]


def test_a_handler_has_the_consumers_timeout_for_each_message(
    source: WatchedSource, runtime: Runtime, clock: ManualClock
) -> None:
    left: list[int] = []

    def handler(batch: dict[str, Any], context: Any) -> dict[str, Any]:
        left.append(context.get_remaining_time_in_millis())
        clock.advance(7)
        return {"batchItemFailures": [{"itemIdentifier": batch["Records"][0]["messageId"]}]}

    worker = Worker(source, handler, runtime, name="any", timeout=TIMEOUT)
    source.on_empty = worker.stop
    source.put("a", "b")
    worker.run()
    assert left == [TIMEOUT * 1000] * 2


def test_those_that_were_delivered_most_often_go_first(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    source.put("a", "b")
    _, b = source.receive(2, wait=0, hidden=60)
    source.hide({b["receiptHandle"]: 0})
    (again,) = source.receive(2, wait=0, hidden=60)
    clock.advance(60)
    assert again["messageId"] == b["messageId"]
    worker.run()
    assert WORK.begun == ["b", "a"]


class Bit(Part, type="test.bit"):
    """Half of an event."""


@consumer(on=RepoCreated, splits_into=[Bit])
def splitting(event: RepoCreated, work: UnitOfWork) -> None:
    for key in ("left", "right"):
        work.split(Bit(), key=key)


def test_a_worker_hands_on_the_parts_of_its_events(source: WatchedSource, runtime: Runtime, clock: ManualClock) -> None:
    parts = InMemorySource(clock)
    (worker,) = workers_of(splitting, runtime, source, count=1, parts=parts)
    source.on_empty, source.before_delete = worker.stop, lambda names: None
    source.put("a")
    worker.run()
    assert sorted(Envelope.from_json(body).id.partition("/")[2] for body in parts.visible) == ["left", "right"]
    assert worker.tally == Tally(handled=1)


# Told to stop


def test_what_a_long_poll_brings_after_the_signal_is_given_back_at_once(worker: Worker, source: WatchedSource) -> None:
    source.put("a", "b")
    source.on_reply = worker.stop
    worker.run()
    assert (WORK.begun, source.visible_names, source.deletions) == ([], ["a", "b"], [])
    assert worker.tally == Tally(handed_back=2)


def test_the_unstarted_are_visible_at_once__while_the_third_of_ten_goes_on_to_its_effect(
    worker: Worker, source: WatchedSource
) -> None:
    seen: list[list[str]] = []

    def stop() -> None:
        assert not worker.shutdown(timeout=0), "the third is at work"
        seen.append(source.visible_names)

    WORK.behave = at(3, stop)
    source.put(*TEN)
    worker.run()
    assert seen == [list("defghij")]
    assert effects() == dict.fromkeys("abc", 1)
    assert (source.visible_names, source.hidden) == (list("defghij"), [])
    assert worker.tally == Tally(handled=3, handed_back=7)
    assert worker.shutdown(timeout=0)


def test_being_told_again_changes_nothing(worker: Worker, source: WatchedSource, runtime: Runtime) -> None:
    WORK.behave = at(2, lambda: [worker.stop(), worker.stop()])
    source.put(*TEN)
    worker.run()
    worker.stop()
    assert worker.tally == Tally(handled=2, handed_back=8)
    another(source, runtime).run()
    assert effects() == dict.fromkeys(TEN, 1)


def test_a_worker_that_is_told_before_it_begins_receives_nothing(worker: Worker, source: WatchedSource) -> None:
    source.put("a")
    assert worker.shutdown(timeout=0)
    worker.run()
    assert (WORK.begun, source.visible_names) == ([], ["a"])


def test_a_message_at_its_last_delivery_is_handled__since_given_back_it_would_be_dead(
    worker: Worker, source: WatchedSource
) -> None:
    source.put("a")
    for _ in range(MAX_RECEIVES - 1):
        source.receive(1, wait=0, hidden=0)
    source.put("b")
    source.on_reply = worker.stop
    worker.run()
    assert effects() == {"a": 1}
    assert (source.visible_names, source.dead) == (["b"], [])
    assert source.hidings == [{"message-2/1": 0}]


def test_a_message_that_cannot_be_given_back_is_told_of__and_comes_when_its_time_is_over(
    worker: Worker, source: WatchedSource, clock: ManualClock, logs: Lines
) -> None:
    def stop() -> None:
        source.fail_hide = True
        worker.stop()

    WORK.behave = at(1, stop)
    source.put("a", "b")
    worker.run()
    assert [line["message_id"] for line in logs() if line["message"] == "message not returned"] == ["message-2"]
    assert worker.tally == Tally(handled=1)
    clock.advance(TIMEOUT + 10)
    assert source.visible_names == ["b"]


def test_a_failed_message_keeps_its_wait__when_the_worker_is_told_to_stop_in_it(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    def stop_and_fail() -> None:
        worker.stop()
        raise ValueError("no")

    WORK.behave = at(1, stop_and_fail)
    source.put("a", "b")
    worker.run()
    assert (source.visible_names, source.hidden_names) == (["b"], ["a"])
    clock.advance(60)
    assert source.visible_names == ["b"]


@pytest.mark.parametrize("operation", ["UpdateItem", "TransactWriteItems"])
@pytest.mark.parametrize("late", [False, True])
def test_nothing_is_lost_and_nothing_doubled__when_the_process_dies_in_a_message(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime, operation: str, late: bool
) -> None:
    source.put(*TEN)
    dying = failing(lambda call: call.operation == operation and len(WORK.begun) >= 3, died, after=late)
    with dying, pytest.raises(Died):
        worker.run()
    assert source.visible == []
    clock.advance(TIMEOUT + 10)
    another(source, runtime).run()
    assert effects() == dict.fromkeys(TEN, 1)
    assert (source.visible, source.hidden) == ([], [])


# While it works


def test_nobody_else_gets_what_a_worker_holds__however_long_the_whole_batch_takes(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    seen: list[str] = []

    def work(event: RepoCreated) -> None:
        for _ in range(TIMEOUT - 1):
            clock.advance(1)
            seen.extend(source.visible)

    WORK.behave = work
    source.put(*TEN)
    worker.run()
    assert seen == []
    assert effects() == dict.fromkeys(TEN, 1)
    assert source.hidden == []


def test_quick_messages_need_no_calls_to_stay_hidden__and_are_deleted_together(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    WORK.behave = lambda event: clock.advance(0.05)
    source.put(*TEN)
    worker.run()
    assert (source.deletions, source.hidings) == ([10], [])


def test_a_slow_message_is_deleted_at_once(worker: Worker, source: WatchedSource, clock: ManualClock) -> None:
    WORK.behave = lambda event: clock.advance(2)
    source.put(*"abc")
    worker.run()
    assert source.deletions == [1, 1, 1]


def test_what_runs_beyond_its_timeout_hides_nothing_any_longer__and_others_get_what_waits(
    worker: Worker, source: WatchedSource, clock: ManualClock, runtime: Runtime
) -> None:
    other = Worker(source, worker._handler, runtime, name="other")

    def overrun() -> None:
        clock.advance(TIMEOUT + 11)
        assert source.visible_names == ["a", "b", "c"]
        source.on_empty = other.stop
        WORK.behave = do_nothing
        other.run()
        source.on_empty = worker.stop

    WORK.behave = at(1, overrun)
    source.put("a", "b", "c")
    worker.run()
    assert effects() == dict.fromkeys("abc", 1)
    assert sorted(WORK.begun) == ["a", "a", "b", "c"], "the overrun was taken over, and what waited was left to it"
    assert (source.visible, source.hidden) == ([], [])


def test_a_stale_receipt_is_told_of_and_counted__and_its_message_is_left_to_others(
    worker: Worker, source: WatchedSource, clock: ManualClock, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_what_waits() -> None:
        clock.advance(TIMEOUT + 11)
        source.receive(10, wait=0, hidden=3600)

    WORK.behave = at(1, lose_what_waits)
    source.put("a", "b")
    worker.run()
    assert WORK.begun == ["a"]
    kept = [line for line in logs() if line["message"] == "message not kept"]
    assert [(line["message_id"], line["failure_type"]) for line in kept] == [("message-2", "StaleReceipt")]
    assert '"receipts_stale":' in capsys.readouterr().out


def test_a_message_is_handled_all_the_same__when_it_could_not_be_hidden_for_longer_this_time(
    worker: Worker, source: WatchedSource, clock: ManualClock, logs: Lines
) -> None:
    source.fail_hide = True
    WORK.behave = lambda event: clock.advance(TIMEOUT - 1)
    source.put("a", "b")
    worker.run()
    assert WORK.begun == ["a", "b"]
    assert [line["message_id"] for line in logs() if line["message"] == "message not kept"] == ["message-2"]


def test_no_message_is_hidden_beyond_twelve_hours_of_its_first_receive(
    worker: Worker, source: WatchedSource, clock: ManualClock
) -> None:
    source.put("a", "b")
    source.receive(2, wait=0, hidden=12 * 3600 - 30)
    clock.advance(12 * 3600 - 30)
    WORK.behave = lambda event: clock.advance(6)
    worker.run()
    assert effects() == dict.fromkeys("ab", 1)
    assert source.hidings == [], "hidden for the thirty seconds that are left, and never for more"


def test_a_deletion_that_fails_is_told_of_and_counted__and_the_effect_happens_once(
    worker: Worker,
    source: WatchedSource,
    clock: ManualClock,
    runtime: Runtime,
    logs: Lines,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source.fail_delete = True
    source.put("a", "b")
    worker.run()
    assert [line["message_id"] for line in logs() if line["message"] == "message not deleted"] == [
        "message-1",
        "message-2",
    ]
    assert '"messages_not_deleted":[1.0,1.0]' in capsys.readouterr().out
    source.fail_delete = False
    clock.advance(TIMEOUT + 10)
    another(source, runtime).run()
    assert effects() == dict.fromkeys("ab", 1)
    assert (source.visible, source.hidden) == ([], [])


# Receives that fail


def failing_receives(source: WatchedSource, error: Exception, count: int) -> None:
    left = [error] * count

    def fail() -> None:
        if left:
            raise left.pop()

    source.on_receive = fail


def test_receives_that_fail_are_repeated_with_growing_pauses__told_of_and_counted(
    worker: Worker,
    source: WatchedSource,
    runtime: Runtime,
    clock: ManualClock,
    logs: Lines,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failing_receives(source, ConnectionError("down"), 4)
    source.put("a")
    worker.run()
    assert effects() == {"a": 1}
    pauses = [line["pause"] for line in logs() if line["message"] == "receive failed"]
    backoff = runtime.timings.pause_backoff
    assert [pause >= min(backoff.cap, backoff.base * 2**n) for n, pause in enumerate(pauses)] == [True] * 4
    assert sum(clock.slept) == pytest.approx(sum(pauses))
    assert capsys.readouterr().out.count('"receives_failed":[1.0]') == 4


def test_the_pauses_are_short_again__after_a_receive_that_went_well(
    worker: Worker, source: WatchedSource, runtime: Runtime, logs: Lines
) -> None:
    script: list[Exception | None] = [ConnectionError(), ConnectionError(), None, ConnectionError(), None]

    def next_one() -> None:
        if script and (error := script.pop(0)):
            raise error

    source.on_receive = next_one
    source.put(*TEN, "k")
    worker.run()
    first, second, third = (line["pause"] for line in logs() if line["message"] == "receive failed")
    base = runtime.timings.pause_backoff.base
    assert first < 1.5 * base < 2 * base <= second
    assert third <= 1.5 * base


def test_a_pause_ends_soon__when_the_worker_is_told_to_stop(
    worker: Worker, source: WatchedSource, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_receives(source, ConnectionError("down"), 1000)

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        worker.stop()

    monkeypatch.setattr(clock, "sleep", sleep)
    worker.run()
    assert clock.monotonic() <= 0.5


def test_a_source_that_is_refused_from_the_start_ends_the_worker(worker: Worker, source: WatchedSource) -> None:
    failing_receives(source, SourceRefused("no such queue"), 1)
    with pytest.raises(SourceRefused):
        worker.run()
    assert worker.shutdown(timeout=0)


def test_a_source_that_is_refused_later_may_come_back(worker: Worker, source: WatchedSource) -> None:
    source.put(*TEN, "k")
    worker_received = []

    def refuse_the_second() -> None:
        worker_received.append(1)
        if len(worker_received) == 2:
            raise SourceRefused("somebody changes the policy")

    source.on_receive = refuse_the_second
    worker.run()
    assert len(effects()) == 11


# What it says


def test_a_worker_says_that_it_started_and_what_it_did(worker: Worker, source: WatchedSource, logs: Lines) -> None:
    WORK.behave = at(2, worker.stop)
    source.put("a", "b", "c")
    worker.run()
    lines = [line for line in logs() if line["message"].startswith("worker")]
    assert [(line["message"], line["consumer"]) for line in lines] == [
        ("worker started", "adding"),
        ("worker stopped", "adding"),
    ]
    assert {name: lines[1][name] for name in ("handled", "failed", "handed_back")} == {
        "handled": 2,
        "failed": 0,
        "handed_back": 1,
    }


# A process of them


class InThread:
    """Runs workers as a process does, in a thread of the test's."""

    def __init__(self, workers: list[Worker], runtime: Runtime, grace: float) -> None:
        self.shutdown = Shutdown()
        self.answers: list[bool | BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(workers, runtime, grace), daemon=True)
        self._thread.start()

    def _run(self, workers: list[Worker], runtime: Runtime, grace: float) -> None:
        try:
            self.answers.append(work_until(self.shutdown, workers, runtime, grace=grace))
        except BaseException as error:
            self.answers.append(error)

    def answer(self) -> bool | BaseException:
        self._thread.join(BOUND)
        (answer,) = self.answers
        return answer


class Gate:
    """Holds a handler until the test lets it go."""

    def __init__(self) -> None:
        self.reached, self.open = threading.Semaphore(0), threading.Event()

    def __call__(self, event: RepoCreated | None = None) -> None:
        self.reached.release()
        assert self.open.wait(BOUND)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open.set()


def test_all_has_ended_in_time__when_what_runs_ends_within_the_grace(
    worker: Worker, source: WatchedSource, runtime: Runtime, gate: Gate
) -> None:
    WORK.behave = at(3, gate)
    source.put(*TEN)
    process = InThread([worker], runtime, grace=BOUND)
    assert gate.reached.acquire(timeout=BOUND)
    process.shutdown.requested.set()
    eventually(lambda: source.visible_names == list("defghij"), within=BOUND)
    gate.open.set()
    assert process.answer() is True
    assert (effects(), source.hidden) == (dict.fromkeys("abc", 1), [])


def test_not_all_has_ended__when_a_handler_outlives_the_grace__and_nothing_of_it_is_lost(
    worker: Worker, source: WatchedSource, runtime: Runtime, gate: Gate, clock: ManualClock
) -> None:
    WORK.behave = at(3, gate)
    source.put(*TEN)
    process = InThread([worker], runtime, grace=0)
    assert gate.reached.acquire(timeout=BOUND)
    process.shutdown.requested.set()
    assert process.answer() is False
    assert source.visible_names == list("defghij")
    assert source.hidden_names == ["a", "b", "c"], "a and b wait for c, to be deleted with it"
    clock.advance(TIMEOUT + 11)  # the process is gone
    WORK.behave = do_nothing
    another(source, runtime).run()
    assert effects() == dict.fromkeys(TEN, 1)
    gate.open.set()
    assert worker.shutdown(timeout=BOUND)
    assert effects() == dict.fromkeys(TEN, 1), "what the first one still did came too late"


def test_several_messages_are_handled_side_by_side__each_by_a_worker_of_its_own(
    source: WatchedSource, runtime: Runtime, gate: Gate
) -> None:
    WORK.behave = gate
    source.put("a", "b", "c")
    process = InThread(workers_of(adding, runtime, source, count=3), runtime, grace=BOUND)
    for _ in range(3):
        assert gate.reached.acquire(timeout=BOUND)
    assert sorted(WORK.begun) == ["a", "b", "c"]
    process.shutdown.requested.set()
    gate.open.set()
    assert process.answer() is True
    assert effects() == dict.fromkeys("abc", 1)


def test_a_worker_that_breaks_ends_the_process__and_the_others_give_back(
    source: WatchedSource, runtime: Runtime, clock: ManualClock, gate: Gate
) -> None:
    WORK.behave = gate
    source.put("a", "b")
    elsewhere = WatchedSource(clock)

    def refuse_once_the_other_is_at_work() -> None:
        assert gate.reached.acquire(timeout=BOUND)
        raise SourceRefused("no such queue")

    elsewhere.on_receive = refuse_once_the_other_is_at_work
    broken = Worker(elsewhere, lambda batch, context: None, runtime, name="broken")
    process = InThread([*workers_of(adding, runtime, source, count=1), broken], runtime, grace=BOUND)
    eventually(lambda: source.visible_names == ["b"], within=BOUND)
    gate.open.set()
    assert isinstance(process.answer(), SourceRefused)
    assert effects() == {"a": 1}
