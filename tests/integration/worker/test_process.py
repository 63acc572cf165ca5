"""A process of workers: they begin and end together."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.events import RepoCreated
from local.waiting import eventually
from mailroom.runtime import Runtime
from mailroom.shutdown import Shutdown
from mailroom.sources.source import SourceRefused
from mailroom.testing import ManualClock
from mailroom.worker import Worker
from mailroom.workers import work_until, workers_of

from .watched import BOUND, TEN, TIMEOUT, WORK, WatchedSource, adding, another, at, do_nothing, effects


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
    eventually(lambda: source.hidden_names == ["c"], within=BOUND, what="a and b are deleted though c is at work")
    clock.advance(TIMEOUT + 400)  # the process is gone, and the wait after a failure is over
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
