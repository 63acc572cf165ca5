"""Threads that run one at a time: each stops where a scheduler may let another go on, so that a seed tells it all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from threading import Lock, Thread

from tests.faults import Died

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
HUNG_AFTER = 60


class ProcessClock:
    """What one process takes for the time.

    Parameters
    ----------
    skew
        Seconds by which its wall clock is ahead.
    """

    def __init__(self, stage: Stage, skew: float) -> None:
        self.skew = skew
        self.stood_still = 0.0
        self._stage = stage

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=round(self._stage.time + self.skew, 6))

    def monotonic(self) -> float:
        return self._stage.time - self.stood_still

    def sleep(self, seconds: float) -> None:
        self._stage.sleep(seconds)


class Actor:
    """A process: a thread that goes on only when it is let, a clock and randomness of its own."""

    def __init__(self, stage: Stage, name: str, work: Callable[[Actor], object], *, skew: float) -> None:
        self.name = name
        self.clock = ProcessClock(stage, skew)
        self.random = Random(stage.random.getrandbits(64))  # noqa: S311 - repeatable on purpose
        self.steps = 0
        self.wakes_at = 0.0
        self.frozen_at: float | None = None
        self.stands_still = False
        self.ended = False
        self.error: BaseException | None = None
        self.go = Lock()
        self.go.acquire()
        self._stage = stage
        self._work = work
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def freeze(self, until: float, *, stands_still: bool) -> None:
        """Stop it in the middle of whatever it does; some machines' monotonic clocks stand still meanwhile."""
        self.frozen_at, self.wakes_at, self.stands_still = self._stage.time, until, stands_still

    def thaw(self) -> None:
        """Let its clock know that it was frozen."""
        if self.frozen_at is not None and self.stands_still:
            self.clock.stood_still += self._stage.time - self.frozen_at
        self.frozen_at = None

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join(HUNG_AFTER)

    def _run(self) -> None:
        self.go.acquire()
        try:
            self._work(self)
        except BaseException as error:  # a death is one of its ends
            self.error = error
        self.ended = True
        self._stage.hand_back()


class Stage:
    """Where actors play: the true time, who is on, and the seed of it all."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.time = 0.0
        self.current: Actor | None = None
        self.actors: list[Actor] = []
        self.crash_rate = 0.0
        self.over = False
        self._back = Lock()
        self._back.acquire()

    def start(self, name: str, work: Callable[[Actor], object], *, skew: float = 0) -> Actor:
        """Bring a process on; it does nothing before its first step."""
        actor = Actor(self, name, work, skew=skew)
        self.actors.append(actor)
        return actor

    def step(self, actor: Actor, steps: int) -> None:
        """Let a process go on past so many gates."""
        actor.thaw()
        actor.steps, self.current = steps, actor
        actor.go.release()
        if not self._back.acquire(timeout=HUNG_AFTER):
            raise TimeoutError(f"{actor.name} came to no gate within {HUNG_AFTER} s")
        self.current = None
        if actor.ended:
            actor.join()
            self.actors.remove(actor)

    def finish(self, actor: Actor) -> None:
        """Let a process go on to its end, alone."""
        while not actor.ended:
            self.time = max(self.time, actor.wakes_at)
            self.step(actor, 10**9)

    def close(self) -> None:
        """End all that is still on."""
        self.over = True
        for actor in list(self.actors):
            self.finish(actor)

    def gate(self) -> None:
        """Pass a place at which the process may die, or another go on."""
        actor = self.current
        if actor is None:
            return
        self.time += self.random.uniform(0.001, 0.03)
        self._die_perhaps()
        actor.steps -= 1
        if actor.steps <= 0:
            self._wait(actor)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the process that is on: in one go if it is short, else others go on meanwhile."""
        actor = self.current
        if actor is None or seconds < 1:
            self.time += seconds
            return
        actor.wakes_at = self.time + seconds
        self._wait(actor)

    def hand_back(self) -> None:
        """Let the scheduler go on."""
        self._back.release()

    def on_death(self, actor: Actor) -> None:
        """Note that a process is about to die."""

    def _wait(self, actor: Actor) -> None:
        self.hand_back()
        actor.go.acquire()
        if self.over:
            raise Died

    def _die_perhaps(self) -> None:
        if self.over:
            raise Died
        if self.crash_rate and self.random.random() < self.crash_rate:
            self.die()

    def die(self) -> None:
        """End the process that is on, here and now."""
        if self.current is not None:
            self.on_death(self.current)
        raise Died
