"""The harness: a scenario again and again, each time with another call failing in another way."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from random import Random
from typing import ClassVar
from zlib import crc32

from mailroom.clients import Call, observed
from tests.faults import Died

from .aws import Aws
from .faults import Fault, Strike, Strikes
from .ledger import Finding, Flaw, sound
from .partial_answers import REFUSALS, PartialRefusal
from .world import World

PAST_EVERY_WINDOW = 200
"""Seconds after which leases, in-progress windows and visibility timeouts are over."""
LONGEST_PAUSE = 64
_FAULTS = tuple(Fault)


class Scenario:
    """One way through the system. A new instance is made for each run: it is the memory of clients and operators.

    Subclasses say what is there before, what production does again and again until it is done, and what must have
    come of it.
    """

    tries: ClassVar[int] = 60
    """How often production tries before the run counts as stuck; the pauses in between grow to 64 s."""

    def prepare(self, world: World) -> None:
        """Set the stage: no fault strikes here."""

    def step(self, world: World) -> bool:
        """Try once, as a client, a wake-up, a delivery or an operator does; answer whether nothing is left to do.

        It is called again after a death, after an error, once more when all is done, and by another process while
        this one stalls.
        """
        raise NotImplementedError

    def judge(self, world: World) -> Iterator[Finding]:
        """Find what is wrong at the end, beyond what is wrong in any scenario."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Run:
    """What one run came to.

    Parameters
    ----------
    calls
        The AWS calls until it was done.
    struck
        Those that a fault struck, by their number.
    """

    scenario: str
    strikes: Mapping[int, Strike]
    calls: list[Call]
    struck: Mapping[int, Call]
    tries: int
    findings: list[Finding]

    def report(self) -> str:
        """Say what was struck and what the ledger says."""
        where = " and ".join(
            f"call {number} ({self.struck[number].operation if number in self.struck else 'never made'}) {fault.value}"
            for number, fault in self.strikes.items()
        )
        found = "; ".join(f"{finding.flaw.value.upper()}: {finding.what}" for finding in self.findings)
        return f"{self.scenario}, {where or 'no fault'}: {found}"


@dataclass(slots=True)
class Tally:
    """The sum of all runs."""

    runs: int = 0
    flaws: Counter[Flaw] = field(default_factory=Counter)

    def add(self, run: Run) -> None:
        """Count a run, and each way in which it went wrong once."""
        self.runs += 1
        self.flaws.update({finding.flaw for finding in run.findings})

    def line(self) -> str:
        """Answer the closing line."""
        lost, duplicated, stuck = (self.flaws[flaw] for flaw in (Flaw.LOST, Flaw.DUPLICATED, Flaw.STUCK))
        return f"{self.runs} runs, {lost} lost, {duplicated} duplicated, {stuck} stuck"


class Harness:
    """Runs scenarios against one account.

    Parameters
    ----------
    tally
        Where runs are counted.
    """

    def __init__(self, aws: Aws, tally: Tally) -> None:
        self._aws = aws
        self._tally = tally

    def every_call(self, scenario: type[Scenario], faults: Sequence[Fault] = _FAULTS) -> Iterator[Run]:
        """Run it once as it is, then with each fault at every call; answer the runs that went wrong."""
        plain = self.run(scenario, {})
        if plain.findings:
            yield plain
        for number, call in enumerate(plain.calls, 1):
            for fault in faults:
                if fault.strikes(call):
                    in_time = plain.tries if fault is Fault.ANSWER_LOST else None
                    yield from self._wrong(scenario, {number: fault}, tries=in_time)

    def partial_answers(self, scenario: type[Scenario]) -> Iterator[Run]:
        """Run it with one entry of each call refused in each way; answer the runs that went wrong."""
        for number, call in enumerate(self.run(scenario, {}).calls, 1):
            for refusal in REFUSALS.get(call.operation, ()):
                yield from self._wrong(scenario, {number: refusal})

    def pairs(self, scenario: type[Scenario], count: int, seed: int) -> Iterator[Run]:
        """Run it with two faults at random, the second perhaps in the recovery; answer the runs that went wrong."""
        calls = len(self.run(scenario, {}).calls)
        random = Random(seed)  # noqa: S311 - repeatable on purpose
        for _ in range(count):
            first = random.randint(1, calls)
            second = random.randint(first + 1, first + calls)
            run = self.run(scenario, {first: random.choice(_FAULTS), second: random.choice(_FAULTS)})
            if run.findings:
                yield run

    def run(self, kind: type[Scenario], strikes: Mapping[int, Strike], *, tries: int | None = None) -> Run:
        """Run a scenario with these faults at these calls, let it recover, and judge it.

        Parameters
        ----------
        tries
            How many tries it may take at most, where a fault is none that anybody should notice.
        """
        world = World(self._aws, seed=crc32(kind.__name__.encode()))
        world.final_refusals = {
            each.code for each in strikes.values() if isinstance(each, PartialRefusal) and each.final
        }
        scenario = kind()
        with _silence(), observed(world.journal):
            scenario.prepare(world)
            self._aws.reads.catch_up_indexes()  # the stage was set a while ago
            caller = _Caller(scenario, world, strikes)
            with observed(caller.strikes), self._between(caller.strikes):
                findings = caller.until_done()
                calls = list(caller.strikes.calls)
                findings += caller.once_more()
            if tries is not None and caller.tries > tries:
                findings.append(Finding(Flaw.STUCK, f"took {caller.tries} tries instead of {tries}"))
            findings += [*sound(world, strikes.values()), *scenario.judge(world)]
        run = Run(kind.__name__, strikes, calls, caller.strikes.struck, caller.tries, findings)
        self._tally.add(run)
        return run

    def _wrong(
        self, scenario: type[Scenario], strikes: Mapping[int, Strike], *, tries: int | None = None
    ) -> Iterator[Run]:
        run = self.run(scenario, strikes, tries=tries)
        assert run.struck.keys() == strikes.keys(), f"{scenario.__name__} is not repeatable: {run.report()}"
        if run.findings:
            yield run

    @contextmanager
    def _between(self, strikes: Strikes) -> Iterator[None]:
        undisturbed, self._aws.between = self._aws.between, strikes.between
        try:
            yield
        finally:
            self._aws.between = undisturbed


class _Caller:
    """Whoever tries again: clients, wake-ups, deliveries, operators."""

    def __init__(self, scenario: Scenario, world: World, strikes: Mapping[int, Strike]) -> None:
        self.strikes = Strikes(strikes, self._another_takes_over)
        self.tries = 0
        self._scenario = scenario
        self._world = world
        self._errors: list[str] = []

    def until_done(self) -> list[Finding]:
        """Try until nothing is left to do, at first soon, then after every window is over."""
        for attempt in range(self._scenario.tries):
            self.tries += 1
            if self._attempt():
                return []
            self._world.clock.advance(min(2**attempt, LONGEST_PAUSE))
        return [Finding(Flaw.STUCK, f"still not done after {self._scenario.tries} tries: {self._errors[-1:]}")]

    def once_more(self) -> list[Finding]:
        """Try once more when all is over: a repetition must find nothing left to do."""
        self.strikes.pause()
        for _ in range(2):
            self._world.clock.advance(PAST_EVERY_WINDOW)
            if not self._attempt():
                return [Finding(Flaw.STUCK, f"done, but not when it is tried once more: {self._errors[-1:]}")]
        return []

    def _attempt(self) -> bool:
        done = False
        try:
            done = self._scenario.step(self._world)
        except Died:
            self._world.restart()
        except Exception as error:
            self._errors.append(f"{type(error).__name__}: {error}")
        else:
            assert not self.strikes.dead, "something of ours caught the death of the process"
        self.strikes.next_try()
        return done

    def _another_takes_over(self) -> None:
        stalled = self._world.process
        self._world.clock.advance(PAST_EVERY_WINDOW)
        self._world.restart()
        for _ in range(3):
            try:
                if self._scenario.step(self._world):
                    break
            except Exception as error:
                self._errors.append(f"{type(error).__name__}: {error}")
            self._world.clock.advance(LONGEST_PAUSE)
        self._world.process = stalled


@contextmanager
def _silence() -> Iterator[None]:
    """Keep thousands of runs from telling their stories."""
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stdout(StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)
