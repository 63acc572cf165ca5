"""Redrive: a plan that freezes what is meant, then a job with an outcome for each letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice

from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.letter import DeadLetter, Deed, Fate, Result
from mailroom.failures import Failure, FailureKind

CANARY_STEPS = (1, 10, 100)
"""How many letters a canary sends before it looks what became of them; after the last, the rest."""
SOON = timedelta(hours=48)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a redrive is about: these letters and no others, whatever dies meanwhile.

    Parameters
    ----------
    succeeded
        Ids whose effect has happened already, or in whose place another event was put: they run again only by force.
    forgotten
        Ids of which nobody knows any more whether their effect has happened: likewise.
    expiring
        Ids whose messages leave their queue for good within 48 hours.
    more
        Whether others are meant too, beyond a limit.
    """

    letters: tuple[DeadLetter, ...]
    succeeded: frozenset[str] = frozenset()
    forgotten: frozenset[str] = frozenset()
    expiring: frozenset[str] = frozenset()
    more: bool = False

    @classmethod
    def matching(
        cls,
        desk: Desk,
        *,
        source: str | None = None,
        keep: Callable[[DeadLetter], bool],
        limit: int | None = None,
    ) -> Plan:
        """Freeze what is dead and passes a filter, so many at most; what a consumer still retries is left alone."""
        dead = (each for each in desk.letters(source=source, keep=keep) if each.state == "dead")
        some = list(islice(dead, limit))
        plan = cls._of(desk, some, {each.id: each.doubt for each in some if each.doubt})
        return replace(plan, more=next(dead, None) is not None)

    @classmethod
    def naming(cls, desk: Desk, source: str, ids: Iterable[str]) -> Plan:
        """Freeze letters of a source by their ids, listed as failing or not."""
        letters, wanted = desk.of(source), list(dict.fromkeys(ids))
        known = {event_id: letters.get(event_id) for event_id in wanted}
        known |= {each.id: each for each in letters.search(each for each in wanted if known[each] is None).letters}
        doubts = {event_id: letters.doubt(event_id) for event_id in wanted}
        return cls._of(desk, [known[each] or _unlisted(each, source) for each in wanted], doubts)

    @classmethod
    def _of(cls, desk: Desk, letters: Iterable[DeadLetter], doubts: Mapping[str, Fate | None]) -> Plan:
        frozen, soon = tuple(letters), desk.runtime.clock.now() + SOON
        over = {Fate.SUCCEEDED_BEFORE, Fate.REPLACED}
        return cls(
            frozen,
            succeeded=frozenset(each for each, doubt in doubts.items() if doubt in over),
            forgotten=frozenset(each for each, doubt in doubts.items() if doubt is Fate.RECORD_EXPIRED),
            expiring=frozenset(each.id for each in frozen if each.expires_at is not None and each.expires_at <= soon),
        )

    @property
    def by_source(self) -> dict[str, int]:
        """How many letters come from where."""
        return dict(Counter(letter.source for letter in self.letters))


def _unlisted(event_id: str, source: str) -> DeadLetter:
    untold = Failure(FailureKind.TRANSIENT, "Unknown", "it is not listed as failing")
    return DeadLetter(event_id, source, "unlisted", "?", None, untold, attempts=0, died_at="")


class Redrive:
    """Sends a plan's letters again.

    Parameters
    ----------
    rate
        Letters a second at most; None is as fast as it goes.
    canary
        Send 1, 10, 100, then the rest; before each step wait for what became of the last, and stop when a letter
        comes back with the failure that it had.
    patience
        Seconds to wait for what becomes of a canary step.
    """

    def __init__(
        self,
        desk: Desk,
        plan: Plan,
        deed: Deed,
        *,
        force: bool = False,
        rate: float | None = None,
        canary: bool = False,
        patience: float = 300,
    ) -> None:
        self._desk = desk
        self._plan = plan
        self._deed = deed
        self._force = force
        self._rate = rate
        self._canary = canary
        self._patience = patience

    def run(self) -> Iterator[Result]:
        """Send the letters; answer each one's outcome as it is known."""
        left = list(self._plan.letters)
        for size in (*(CANARY_STEPS if self._canary else ()), len(left)):
            step, left = left[:size], left[size:]
            done = set()
            for result in self._send(step):
                yield result
                if result.ok:
                    done.add(result.id)
            if self._canary and left:
                stop = self._reason_to_stop([each for each in step if each.id in done])
                if stop is not None:
                    yield from (Result(each.id, each.source, Fate.NOT_TRIED, stop) for each in left)
                    return

    def _send(self, letters: Sequence[DeadLetter]) -> Iterator[Result]:
        clock = self._desk.runtime.clock
        began, done = clock.monotonic(), 0
        for source in dict.fromkeys(letter.source for letter in letters):
            ids = [letter.id for letter in letters if letter.source == source]
            # One look through a queue serves them all, however slowly they go.
            for result in self._desk.of(source).redrive(ids, self._deed, force=self._force):
                done += 1
                yield result
                ahead = done / self._rate - (clock.monotonic() - began) if self._rate else 0
                if ahead > 0:
                    clock.sleep(ahead)

    def _reason_to_stop(self, letters: Sequence[DeadLetter]) -> str | None:
        """Wait for what becomes of a step; answer why the next one must not follow."""
        clock = self._desk.runtime.clock
        deadline = clock.monotonic() + self._patience
        while True:
            undecided = []
            for letter in letters:
                outcome = self._desk.of(letter.source).fate(letter.id)
                if isinstance(outcome, Failure) and outcome.fingerprint == letter.failure.fingerprint:
                    return f"{letter.id} came back with the same failure: {outcome.message}"
                if outcome is None:
                    undecided.append(letter)
            if not undecided:
                return None
            if clock.monotonic() >= deadline:
                return f"{undecided[0].id} came to no end within {self._patience:g} s"
            letters = undecided
            clock.sleep(1)
