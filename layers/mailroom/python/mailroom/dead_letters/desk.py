"""The desk: one view over everything that died, whatever the source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mailroom import clients
from mailroom.clock import timestamp
from mailroom.dead_letters.consumer import ConsumerLetters
from mailroom.dead_letters.letter import OUTBOX, DeadLetter, Deed, Fate, Result, Search
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.dead_letters.queue import LOOKED_AT
from mailroom.dead_letters.undelivered import UndeliveredLetters
from mailroom.deployment import DEAD, UNDELIVERED, Deployment, queue_depths
from mailroom.failures import Failure
from mailroom.runtime import Runtime


class Letters(Protocol):
    """The dead letters of one source."""

    name: str

    def page(self, cursor: str | None = None, *, limit: int = 100) -> tuple[list[DeadLetter], str | None]:
        """Answer some, and the cursor of the next page."""
        ...

    def get(self, event_id: str) -> DeadLetter | None:
        """Answer one, if a list tells of it."""
        ...

    def search(self, ids: Iterable[str]) -> Search:
        """Look for some where no list tells of them."""
        ...

    def doubt(self, event_id: str) -> Fate | None:
        """Answer why sending it again may make its effect happen twice; None if nothing says so."""
        ...

    def fate(self, event_id: str) -> Failure | bool | None:
        """Answer what became of it: True is success, a failure is one, None is not known yet."""
        ...

    def redrive(
        self, ids: Sequence[str], deed: Deed, *, force: bool = False, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Result]:
        """Send them again, as long as `stop` does not say that the time is up."""
        ...

    def discard(self, ids: Sequence[str], deed: Deed) -> Iterator[Result]:
        """Give them up."""
        ...


class UnknownSource(LookupError):
    """Nothing of this name has dead letters; the message lists what has."""


@dataclass(slots=True)
class Group:
    """Dead letters that failed alike."""

    fingerprint: str
    source: str
    type: str
    failure: str
    count: int
    first: str
    last: str


class Desk:
    """Everything that died in a stage, by source: the outbox, each consumer, and what never reached its queue."""

    def __init__(self, runtime: Runtime, deployment: Deployment) -> None:
        self.runtime = runtime
        self.deployment = deployment
        self._sources: dict[str, Letters] = {OUTBOX: OutboxLetters(runtime)}
        for name in deployment.consumers:
            self._sources[name] = ConsumerLetters(name, runtime, deployment)
        for name in deployment.consumers:
            if f"{name}{UNDELIVERED}" in deployment.queues:  # parts come by no rule
                self._sources[f"{name}{UNDELIVERED}"] = UndeliveredLetters(name, runtime, deployment)

    @property
    def sources(self) -> list[str]:
        """The names of the sources."""
        return list(self._sources)

    def of(self, source: str) -> Letters:
        """Answer one source's letters.

        Raises
        ------
        UnknownSource
            If there is no such source.
        """
        if source not in self._sources:
            raise UnknownSource(f"{source!r} has no dead letters; these may have: {', '.join(self._sources)}")
        return self._sources[source]

    def letters(
        self, *, source: str | None = None, keep: Callable[[DeadLetter], bool] = lambda _: True
    ) -> Iterator[DeadLetter]:
        """Answer letters page by page, reading no further than they are asked for."""
        for name in [source] if source else self.sources:
            cursor: str | None = None
            while True:
                page, cursor = self.of(name).page(cursor, limit=LOOKED_AT)
                yield from filter(keep, page)
                if cursor is None:
                    break

    def find(self, event_id: str) -> list[DeadLetter]:
        """Answer an event's letters in every source's list: several consumers may have failed at it."""
        found = (self.of(name).get(event_id) for name in self.sources)
        return [letter for letter in found if letter is not None]

    def search(self, ids: Iterable[str]) -> Search:
        """Look through every dead-letter queue for what is in no list."""
        wanted = list(ids)
        return sum((self.of(name).search(wanted) for name in self.sources), Search())

    def may_have(self, event_id: str, source: str) -> bool:
        """Answer whether a consumer's letter may still be there to be sent again, or be on its way there.

        A purge leaves no trace but empty queues, so that among other messages it is not seen.
        """
        if source not in self.deployment.consumers:
            return False
        letter = self.of(source).get(event_id)
        if letter is None or (letter.expires_at is not None and letter.expires_at <= self.runtime.clock.now()):
            return False
        # SQS moves it some deliveries after the last attempt: until then it is in the consumer's own queue.
        depths = queue_depths([self.deployment.queues[source], self.deployment.queues[f"{source}{DEAD}"]])
        return sum(depths.values()) > 0

    def depths(self) -> dict[str, int]:
        """Answer how many messages each dead-letter queue has, by its short name."""
        queues = self.deployment.dead_letter_queues
        by_url = queue_depths(queues.values())
        return {name: by_url[url] for name, url in queues.items()}


def groups(letters: Iterator[DeadLetter]) -> list[Group]:
    """Group letters that failed alike, the largest group first."""
    found: dict[tuple[str, str, str], Group] = {}
    for letter in letters:
        key = (letter.source, letter.type, letter.failure.fingerprint)
        group = found.get(key)
        if group is None:
            described = f"{letter.failure.type}: {letter.failure.message}"
            found[key] = Group(
                letter.failure.fingerprint, letter.source, letter.type, described, 1, letter.died_at, letter.died_at
            )
            continue
        group.count += 1
        group.first, group.last = min(group.first, letter.died_at), max(group.last, letter.died_at)
    return sorted(found.values(), key=lambda group: -group.count)


def deed(runtime: Runtime, why: str, *, by: str | None = None) -> Deed:
    """Note who does something and when; by default whoever the AWS credentials are."""
    who: Any = by or clients.sts().get_caller_identity()["Arn"]
    return Deed(by=who, at=timestamp(runtime.clock.now()), why=why)
