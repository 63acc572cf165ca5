"""The scheduler: the real one, whose clock is set by the tests, firing real runs under their leases."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from queue import Empty, SimpleQueue
from random import Random

import pytest
import time_machine

from mailroom import scheduler as scheduler_module
from mailroom.clock import SystemClock, timestamp
from mailroom.declarations import DeclarationError
from mailroom.job import SERVED, Job, JobContext, job, lease_name
from mailroom.lease import LeaseRow
from mailroom.runtime import Runtime
from mailroom.schedule import Cron, Every, Schedule, ScheduleError
from mailroom.scheduler import Scheduler
from tests.log_lines import Lines

PATIENCE = 20
SUNDAY = datetime(2030, 9, 1, tzinfo=UTC)
NOON = datetime(2030, 9, 3, 12, tzinfo=UTC)
MARK = "zz_mark"
"""Sorts last: once this job has run, whatever was due with it was fired."""

Clock = time_machine.Traveller
Begin = Callable[..., "Running"]


@pytest.fixture
def now() -> Iterator[Clock]:
    """The clock of the whole process, two seconds past noon; it stands until it is moved."""
    with time_machine.travel(NOON + timedelta(seconds=2), tick=False) as traveller:
        yield traveller


class Running:
    """A scheduler at work, and what its jobs do."""

    def __init__(self, runtime: Runtime, now: Clock) -> None:
        self.runtime = runtime
        self.scheduler = Scheduler(runtime)
        self._now = now
        self._names: list[str] = []
        self._runs: SimpleQueue[str] = SimpleQueue()

    def job(self, name: str, schedule: Schedule, run: Callable[[JobContext], None] = lambda _: None) -> Job:
        """Register a job of this name."""

        def function(work: JobContext) -> None:
            self._runs.put(name)
            run(work)

        function.__name__ = name
        declared = job(schedule=schedule, timeout=30)(function)
        self.scheduler.register(declared)
        self._names.append(name)
        return declared

    def at(self, moment: datetime) -> None:
        """Set the clock, and let the scheduler see it."""
        self._now.move_to(moment, tick=False)
        self.scheduler.wake_up()

    def ran(self) -> str:
        """Answer which job ran next; it is waited for, and for its end."""
        name = self._runs.get(timeout=PATIENCE)
        self._await_the_end_of(name)
        return name

    def nothing_ran(self) -> bool:
        """Answer whether nothing did since it was last asked."""
        try:
            return not self._runs.get_nowait()
        except Empty:
            return True

    def ran_with_the_mark(self) -> list[str]:
        """Answer all that ran until the mark did."""
        names = list(iter(self.ran, MARK))
        self._await_the_end_of(*self._names)
        while not self._runs.empty():
            names.append(self.ran())
        return sorted(names)

    def _await_the_end_of(self, *names: str) -> None:
        for thread in threading.enumerate():
            if thread.name in names:
                thread.join(PATIENCE)


@pytest.fixture
def begin(runtime: Runtime, now: Clock) -> Iterator[Begin]:
    """Makes schedulers, each in surroundings of its own as if in a process of its own; stops them."""
    made: list[Running] = []
    before = set(threading.enumerate())

    def make() -> Running:
        own = Runtime(runtime.settings, clock=SystemClock(), random=Random(len(made)))  # noqa: S311 - repeatable
        made.append(Running(own, now))
        return made[-1]

    yield make
    for each in made:
        assert each.scheduler.stop(PATIENCE)
    assert not [thread.name for thread in threading.enumerate() if thread not in before]


@pytest.fixture
def running(begin: Begin) -> Running:
    return begin()


def served(name: str) -> str:
    """Answer by which moment the job's last firing is known."""
    return str(json.loads(LeaseRow.get(lease_name(name)).memo)[SERVED])


def seconds_after(moment: datetime, seconds: float) -> datetime:
    return moment + timedelta(seconds=seconds)


# When a job runs


def test_a_job_runs_at_its_moment__and_is_told_it(running: Running) -> None:
    running.job("tick", Every(seconds=5))
    running.scheduler.start()
    for seconds in (5, 10, 15):
        running.at(seconds_after(NOON, seconds + 0.4))
        assert running.ran() == "tick"
        assert served("tick") == timestamp(seconds_after(NOON, seconds))


def test_a_period_is_counted_from_the_epoch__not_from_when_the_process_began(running: Running) -> None:
    running.job("daily", Every(days=1))
    running.job(MARK, Every(minutes=1))
    running.scheduler.start()
    running.at(seconds_after(NOON, 60))
    assert running.ran_with_the_mark() == []
    midnight = NOON + timedelta(hours=12)
    running.at(midnight)
    assert running.ran_with_the_mark() == ["daily"]
    assert served("daily") == timestamp(midnight)


def test_moments_that_went_by_are_one_run__of_the_latest(running: Running, logs: Lines) -> None:
    running.job("tick", Every(seconds=5))
    running.scheduler.start()
    running.at(seconds_after(NOON, 3_604))
    assert running.ran() == "tick"
    assert served("tick") == timestamp(seconds_after(NOON, 3_600))
    running.at(seconds_after(NOON, 3_605))
    assert running.ran() == "tick"
    assert [line["message"] for line in logs()].count("job started") == 2


def test_a_cron_keeps_its_seconds(running: Running) -> None:
    running.job("half_past", Cron(second=30, minute="*"))
    running.job(MARK, Every(seconds=5))
    running.scheduler.start()
    ran = []
    for seconds in range(5, 100, 5):
        running.at(seconds_after(NOON, seconds))
        ran += [(seconds, name) for name in running.ran_with_the_mark()]
    assert ran == [(30, "half_past"), (90, "half_past")]


def test_a_weekday_is_the_same_as_on_eventbridge__by_number_and_by_name(running: Running, now: Clock) -> None:
    names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
    for number, name in enumerate(names, start=1):
        running.job(f"by_name_{name}", Cron(hour=4, day=name))
        running.job(f"by_number_{name}", Cron(hour=4, day=number))
    running.job(MARK, Cron(hour=4))
    now.move_to(SUNDAY, tick=False)
    running.scheduler.start()
    for days, name in enumerate(names):
        running.at(SUNDAY + timedelta(days=days, hours=4))
        assert running.ran_with_the_mark() == [f"by_name_{name}", f"by_number_{name}"]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata"])
def test_moments_are_in_utc__wherever_the_machine_is(begin: Begin, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", zone)
        time.tzset()
        running = begin()
        running.job("at_four", Cron(hour=4))
        running.job("daily", Every(days=1))
        running.scheduler.start()
        running.at(datetime(2030, 9, 4, 0, tzinfo=UTC))
        assert (running.ran(), served("daily")) == ("daily", "2030-09-04T00:00:00.000Z")
        running.at(datetime(2030, 9, 4, 4, tzinfo=UTC))
        assert (running.ran(), served("at_four")) == ("at_four", "2030-09-04T04:00:00.000Z")
    time.tzset()


def test_a_job_has_the_time_that_it_declares(running: Running) -> None:
    left: SimpleQueue[float] = SimpleQueue()
    running.job("tick", Every(seconds=5), lambda work: left.put(work.deadline - work.runtime.clock.monotonic()))
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert left.get(timeout=PATIENCE) == pytest.approx(30 - running.runtime.timings.stop_margin, abs=1)
    assert running.ran() == "tick"


def test_a_job_registered_later_is_fired_too(running: Running) -> None:
    running.job("hourly", Every(hours=1))
    running.scheduler.start()
    running.job("tick", Every(seconds=5))
    running.at(seconds_after(NOON, 5))
    assert running.ran() == "tick"


# A clock that is set


def test_a_clock_set_back_does_not_silence_a_job(running: Running) -> None:
    running.job("tick", Every(seconds=5))
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert running.ran() == "tick"
    an_hour_before = NOON - timedelta(hours=1)
    running.at(seconds_after(an_hour_before, 7))
    running.at(seconds_after(an_hour_before, 10))
    assert running.ran() == "tick"
    assert served("tick") == timestamp(seconds_after(an_hour_before, 10))


def test_a_clock_set_back_by_less_than_it_may_be_wrong_fires_nothing_twice(running: Running, logs: Lines) -> None:
    running.job("tick", Every(seconds=5))
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert running.ran() == "tick"
    for seconds in (1, 3, 5, 7):
        running.at(seconds_after(NOON, seconds))
    running.at(seconds_after(NOON, 10))
    assert running.ran() == "tick"
    assert [line["message"] for line in logs() if line["message"].startswith("job")] == [
        "job started",
        "job completed",
        "job started",
        "job completed",
    ]


def test_a_clock_set_forward_is_noticed__though_nobody_says_so(
    begin: Begin, now: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "_LOOK", timedelta(milliseconds=5))
    running = begin()
    running.job("hourly", Every(hours=1))
    running.scheduler.start()
    now.move_to(NOON + timedelta(hours=1), tick=False)
    assert running.ran() == "hourly"


# More than one


def test_two_schedulers_fire_at_the_same_moment__and_the_job_runs_once(begin: Begin, logs: Lines) -> None:
    first, second = begin(), begin()
    for each in (first, second):
        each.job("tick", Every(seconds=5))
        each.scheduler.start()
    first.at(seconds_after(NOON, 5))
    assert first.ran() == "tick"
    second.at(seconds_after(NOON, 5.9))
    wait_for(logs, "job skipped")
    assert second.nothing_ran()
    (skipped,) = [line for line in logs() if line["message"] == "job skipped"]
    assert (skipped["job"], skipped["reason"]) == ("tick", "a run has served this firing")
    second._await_the_end_of("tick")


def test_a_slow_job_delays_no_other__and_is_not_begun_again_while_it_runs(running: Running, logs: Lines) -> None:
    over = threading.Event()
    running.job("slow", Every(seconds=5), lambda _: over.wait(PATIENCE) and None)
    running.job("quick", Every(seconds=10))
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert running._runs.get(timeout=PATIENCE) == "slow"
    running.at(seconds_after(NOON, 10))
    assert running.ran() == "quick"
    assert wait_for(logs, "job skipped")["job"] == "slow"
    assert [line["message"] for line in logs() if line.get("job") == "slow"] == ["job started", "job skipped"]
    over.set()
    running._await_the_end_of("slow")
    running.at(seconds_after(NOON, 15))
    assert running.ran() == "slow"


# Jobs that fail


def test_a_job_that_raises_is_named_once_with_its_traceback__and_everything_goes_on(
    running: Running, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(work: JobContext) -> None:
        raise ValueError("no")

    running.job("broken", Every(seconds=5), fail)
    running.job(MARK, Every(seconds=5))
    running.scheduler.start()
    for seconds in (5, 10):
        running.at(seconds_after(NOON, seconds))
        assert running.ran_with_the_mark() == ["broken"]
    told = [line for line in logs() if line.get("job") == "broken"]
    assert [line["message"] for line in told] == ["job started", "job failed"] * 2
    assert ["exception" in line for line in told] == [False, True] * 2
    assert capsys.readouterr().err == ""


def test_a_run_that_could_not_begin_is_told__and_the_next_is_tried(
    running: Running, logs: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.job("tick", Every(seconds=5))
    running.scheduler.start()
    with monkeypatch.context() as broken:
        broken.setattr("mailroom.lease.Lease.acquire", refuse)
        running.at(seconds_after(NOON, 5))
        told = wait_for(logs, "job failed")
    assert (told["job"], told["exception_name"]) == ("tick", "ConnectionError")
    running.at(seconds_after(NOON, 10))
    assert running.ran() == "tick"


def refuse(*_: object) -> None:
    raise ConnectionError("no table")


def test_a_job_that_ends_its_thread_has_failed__and_takes_no_other_with_it(running: Running, logs: Lines) -> None:
    running.job("quitter", Every(seconds=5), lambda _: sys.exit(3))
    running.job(MARK, Every(seconds=5))
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert running.ran_with_the_mark() == ["quitter"]
    told = wait_for(logs, "firing failed")
    assert (told["job"], told["exception_name"]) == ("quitter", "SystemExit")
    running.at(seconds_after(NOON, 10))
    assert running.ran_with_the_mark() == []
    running.at(seconds_after(NOON, 75))
    assert running.ran_with_the_mark() == ["quitter"]


# Registering, starting, stopping


def test_a_name_is_registered_once(running: Running) -> None:
    declared = running.job("tick", Every(seconds=5))
    with pytest.raises(DeclarationError, match="both declare 'tick'"):
        running.scheduler.register(declared)


def test_what_is_no_schedule_is_refused(running: Running) -> None:
    declared = running.job("tick", Every(seconds=5))
    object.__setattr__(declared, "schedule", "rate(5 minutes)")
    with pytest.raises(ScheduleError, match=r"tick: .*EventBridge's own form"):
        Scheduler(running.runtime).register(declared)


def test_a_scheduler_without_jobs_does_not_start(running: Running) -> None:
    with pytest.raises(DeclarationError, match="no job is registered"):
        running.scheduler.start()


def test_starting_and_stopping_name_the_jobs(running: Running, logs: Lines) -> None:
    running.job("tick", Every(seconds=5))
    running.job("hourly", Every(hours=1))
    running.scheduler.start()
    assert running.scheduler.stop(PATIENCE)
    started, stopped = logs()
    assert (started["message"], started["jobs"]) == ("scheduler started", ["tick", "hourly"])
    assert (stopped["message"], stopped["jobs"]) == ("scheduler stopped", ["tick", "hourly"])
    assert stopped["running"] == []


def test_stopping_waits_for_what_runs__and_fires_nothing_more(running: Running, logs: Lines) -> None:
    began, over = threading.Event(), threading.Event()

    def run(work: JobContext) -> None:
        began.set()
        over.wait(PATIENCE)

    running.job("slow", Every(seconds=5), run)
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert began.wait(PATIENCE)
    threading.Timer(0.05, over.set).start()
    assert running.scheduler.stop(PATIENCE)
    messages = [line["message"] for line in logs()]
    assert messages == ["scheduler started", "job started", "job completed", "scheduler stopped"]
    running.at(seconds_after(NOON, 60))
    assert "APScheduler" not in [thread.name for thread in threading.enumerate()]


def test_stopping_waits_no_longer_than_it_is_given__and_names_what_still_runs(running: Running, logs: Lines) -> None:
    began, over = threading.Event(), threading.Event()

    def run(work: JobContext) -> None:
        began.set()
        over.wait(PATIENCE)

    running.job("slow", Every(seconds=5), run)
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert began.wait(PATIENCE)
    assert not running.scheduler.stop(0.01)
    assert wait_for(logs, "scheduler stopped")["running"] == ["slow"]
    over.set()
    running._await_the_end_of("slow")  # else its metrics are written where nobody captures them


def test_stopping_tells_a_run_that_asks_for_its_time__to_come_to_its_end(running: Running) -> None:
    began = threading.Event()

    def run(work: JobContext) -> None:
        while not work.out_of_time():
            began.set()

    running.job("long", Every(seconds=5), run)
    running.scheduler.start()
    running.at(seconds_after(NOON, 5))
    assert began.wait(PATIENCE)
    assert running.scheduler.stop(PATIENCE)


def wait_for(logs: Lines, message: str, **facts: object) -> dict[str, object]:
    """Answer the first line that says so, once it is there."""
    tries = threading.Event()
    for _ in range(PATIENCE * 200):
        for line in logs():
            if line["message"] == message and facts.items() <= line.items():
                return line
        tries.wait(0.005)
    raise AssertionError(f"nothing said {message!r}: {logs()}")
