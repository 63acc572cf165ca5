"""Letters that lie in a queue as messages: found by looking, sent again, given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mailroom import clients
from mailroom.clock import timestamp
from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.letter import Action, DeadLetter, Deed, Fate, Result, Search
from mailroom.dead_letters.queue import LOOKED_AT, SEARCHED, DeadLetterQueue, DeadMessage, Look, never
from mailroom.dead_letters.records import ConsumerRecords
from mailroom.failures import Failure, FailureKind
from mailroom.history import read_history
from mailroom.idempotency import IdempotencyRow
from mailroom.runtime import Runtime
from mailroom.sources.source import TENANT

Act = Callable[[DeadMessage], str]
"""What is done to a message before it is deleted; answers what there is to say of it."""


class QueuedLetters:
    """Moves messages out of a queue for dead letters of one consumer.

    A message that was received is hidden from everyone else: of two operators, one has it. It is sent before it is
    deleted, so that a crash in between leaves two, and the consumer's record makes one effect of them.

    Parameters
    ----------
    name
        The source.
    records
        The consumer's.
    queue
        The URL of the consumer's queue.
    dead
        The URL of the queue that the letters lie in.
    """

    def __init__(self, name: str, runtime: Runtime, records: ConsumerRecords, *, queue: str, dead: str) -> None:
        self.name = name
        self.records = records
        self._queue = queue
        self._dead = DeadLetterQueue(dead, runtime.clock)

    def doubt(self, event_id: str) -> Fate | None:
        """Return why sending it again may make its effect happen twice; None if nothing says so."""
        return self.records.doubt(event_id)

    def fate(self, event_id: str) -> Failure | bool | None:
        """Return what became of an event: True is handled, a failure is one, None is not known yet."""
        return self.records.fate(event_id)

    def search(self, ids: Iterable[str]) -> Search:
        """Look for letters among the messages, no further than `SEARCHED`: for those of which no record tells."""
        wanted = dict.fromkeys(ids)
        depth = self._dead.depth() if wanted else 0
        if not depth:
            return Search()
        found = []
        with self._dead.looking(up_to=SEARCHED) as look:
            for message in look:
                if message.id in wanted:
                    del wanted[message.id]
                    found.append(message)
                if not wanted:
                    break
        return Search(tuple(self._letters(found)), look.seen, max(depth, look.seen))

    def redrive(
        self, ids: Sequence[str], deed: Deed, *, force: bool = False, stop: Callable[[], bool] = never
    ) -> Iterator[Result]:
        """Send messages to the consumer again, each under a new message id, so that its attempts start afresh.

        Parameters
        ----------
        force
            Also run what succeeded before, and what nobody knows about any more.
        stop
            Asked before each look into the queue: a deep one may take longer than a request has.
        """
        wanted = dict.fromkeys(ids)
        for event_id in list(wanted):
            refusal = self._refusal(event_id, force=force)
            if refusal is not None:
                del wanted[event_id]
                yield refusal

        def send_again(message: DeadMessage) -> str:
            self._send(message.text, message.tenant)
            self.records.remember(message, Action.REDRIVE, deed)
            return ""

        yield from self._take_out(wanted, send_again, stop)

    def discard(self, ids: Sequence[str], deed: Deed) -> Iterator[Result]:
        """Give messages up: out of the dead-letter queue, with the reason in the record."""

        def note(message: DeadMessage) -> str:
            self.records.remember(message, Action.DISCARD, deed)
            return ""

        yield from self._take_out(dict.fromkeys(ids), note, never)

    def _lying(self, start: str | None, limit: int, *, known: int = 0) -> tuple[list[DeadLetter], str | None]:
        """Return a page of the messages of which no list tells, by age: one look, if there may be such.

        Parameters
        ----------
        known
            How many of the messages are known to be in a list.
        """
        after = read_cursor(start, after=None)
        if self._dead.depth() <= known:
            return [], None
        with self._dead.looking(up_to=LOOKED_AT) as look:
            by_place = {message.place: message for message in look}
        places = sorted(place for place in by_place if after is None or place > after["after"]["S"])
        letters: dict[str, DeadLetter] = {}
        at = 0
        while at < len(places) and len(letters) < limit:
            some = places[at : at + limit - len(letters)]
            letters.update({letter.id: letter for letter in self._letters([by_place[each] for each in some])})
            at += len(some)
        return list(letters.values()), write_cursor({"after": {"S": places[at - 1]}} if at < len(places) else None)

    def _refusal(self, event_id: str, *, force: bool) -> Result | None:
        doubt = self.doubt(event_id)
        if doubt is not None and not force:
            return Result(event_id, self.name, doubt, "it might run twice: use force if that is meant")
        if doubt is Fate.SUCCEEDED_BEFORE:
            self.records.forget_success(event_id)
        return None

    def _take_out(self, wanted: dict[str, None], act: Act, stop: Callable[[], bool]) -> Iterator[Result]:
        if not wanted:
            return
        with self._dead.looking(up_to=SEARCHED, stop=stop) as look:
            for message in look:
                if message.id in wanted:
                    del wanted[message.id]
                    yield self._take_one(look, message, act)
                if not wanted:
                    break
        for event_id in wanted:
            yield self._not_found(event_id, look)

    def _take_one(self, look: Look, message: DeadMessage, act: Act) -> Result:
        try:
            detail = act(message)
            look.take(message)
        except Exception as error:  # one letter's trouble is not the next one's
            return Result(message.id, self.name, Fate.FAILED, f"{type(error).__name__}: {error}")
        return Result(message.id, self.name, Fate.DONE, detail)

    def _not_found(self, event_id: str, look: Look) -> Result:
        depth = max(self._dead.depth(), look.seen)
        if look.was_stopped:
            fate, detail = Fate.NOT_TRIED, "the time was up before its message was found: try again"
        elif look.reached_end:
            others = depth - look.seen
            elsewhere = f"; {others:,} more are in somebody's hands, try again in two minutes" if others else ""
            fate, detail = Fate.NOT_IN_QUEUE, f"its message is not in the dead-letter queue{elsewhere}"
        else:
            fate, detail = Fate.NOT_FOUND, f"not found among the first {look.seen:,} of about {depth:,} looked at"
        return Result(event_id, self.name, fate, detail)

    def _send(self, body: str, tenant: str | None) -> None:
        more: Any = {TENANT: tenant} if tenant else {}
        clients.sqs().send_message(QueueUrl=self._queue, MessageBody=body, **more)

    def _letters(self, messages: Sequence[DeadMessage]) -> list[DeadLetter]:
        """Show messages as letters, but those that are in a list."""
        records = self.records.of(message.id for message in messages)
        shown = (self._letter(message, records.get(message.id)) for message in messages)
        return [letter for letter in shown if letter is not None]

    def _letter(self, message: DeadMessage, record: IdempotencyRow | None) -> DeadLetter | None:
        """Show a message as a letter; None if a list tells of it."""
        about = message.envelope
        return DeadLetter(
            id=message.id,
            source=self.name,
            state="dead",
            type=about.type if about else "?",
            subject=about.subject if about else None,
            failure=self._failure_of(message, record),
            attempts=self._attempts_at(message, record),
            died_at=timestamp(message.sent_at),
            redriven=int(record.redriven or 0) if record else 0,
            expires_at=self.records.leaves_at(message.sent_at),
            history=read_history(record.history) if record else [],
            doubt=self.records.doubt_of(record, message.id),
        )

    def _failure_of(self, message: DeadMessage, record: IdempotencyRow | None) -> Failure:
        raise NotImplementedError

    def _attempts_at(self, message: DeadMessage, record: IdempotencyRow | None) -> int:
        raise NotImplementedError


HANDLED = Failure(FailureKind.PERMANENT, "HandledBefore", "its effect has happened: this is a copy, to be discarded")
"""Why a message should not be sent again."""
