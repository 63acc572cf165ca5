"""Letters that lie in a queue as messages: found by looking, sent again, given up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mailroom import clients
from mailroom.clock import timestamp
from mailroom.cursor import read_cursor, write_cursor
from mailroom.dead_letters.letter import Action, DeadLetter, Deed, Fate, Result, Search
from mailroom.dead_letters.mending import mended_message
from mailroom.dead_letters.queue import LOOKED_AT, DeadLetterQueue, DeadMessage, never
from mailroom.dead_letters.records import ConsumerRecords, Record, became_of
from mailroom.dead_letters.taking import Taker
from mailroom.failures import Failure, FailureKind
from mailroom.history import read_history
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.outbox.event import Envelope
from mailroom.reading import flaw_of, row_of
from mailroom.runtime import Runtime
from mailroom.sources.source import TENANT


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
        self._clock = runtime.clock
        self._dead = DeadLetterQueue(dead, runtime.clock)
        self._taker = Taker(name, self._dead)

    def doubt(self, event_id: str) -> Fate | None:
        """Return why sending it again may make its effect happen twice; None if nothing says so."""
        return self.records.doubt(event_id)

    def fate(self, event_id: str) -> Failure | bool | None:
        """Return what became of an event: True is handled, a failure is one, None is not known yet."""
        return self.records.fate(event_id)

    def search(self, ids: Iterable[str]) -> Search:
        """Look for letters among the messages, with what is in them."""
        wanted = dict.fromkeys(ids)
        depth = self._dead.depth() if wanted else 0
        if not depth:
            return Search()
        found = []
        with self._dead.searching() as look:
            for message in look:
                if message.id in wanted:
                    del wanted[message.id]
                    found.append(message)
                if not wanted:
                    break
        records = self.records.of(message.id for message in found)
        letters = (self._letter(message, records.get(message.id)) for message in found)
        return Search(tuple(letters), look.seen, max(depth, look.seen))

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

        yield from self._taker.take(wanted, send_again, stop=stop)

    def discard(self, ids: Sequence[str], deed: Deed) -> Iterator[Result]:
        """Give messages up: out of the dead-letter queue, with the reason in the record."""

        def note(message: DeadMessage) -> str:
            self.records.remember(message, Action.DISCARD, deed)
            return ""

        yield from self._taker.take(ids, note)

    def edit(self, event_id: str, payload: str, deed: Deed, *, read: Callable[[Envelope], object]) -> Result:
        """Put a mended copy in a letter's place: a new event of this consumer alone, which names its parent.

        The copy has one id however often this is done, so that it has one effect: after a crash in the middle the same
        is done again.

        Parameters
        ----------
        payload
            The new payload, a JSON object.
        read
            What the consumer reads an event by; raises if it could not.
        """
        if self.doubt(event_id) is Fate.SUCCEEDED_BEFORE:
            return Result(event_id, self.name, Fate.SUCCEEDED_BEFORE, "its effect has happened: discard it")

        def mend(message: DeadMessage) -> str:
            copy = mended_message(message, payload, self._clock.now())
            read(copy)
            record = self.records.begin(copy.id, copy, message_id="-")  # SQS tells a message's id when it is sent
            if record.status != COMPLETED and not record.attempts:
                self._send(copy.to_json(), message.tenant)
            self.records.remember(message, Action.EDIT, deed, became=copy.id)
            return copy.id

        (result,) = self._taker.take([event_id], mend)
        return result

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
            letters.update({letter.id: letter for letter in self._unlisted([by_place[each] for each in some])})
            at += len(some)
        return list(letters.values()), write_cursor({"after": {"S": places[at - 1]}} if at < len(places) else None)

    def _refusal(self, event_id: str, *, force: bool) -> Result | None:
        doubt = self.doubt(event_id)
        if doubt is not None and not force:
            return Result(event_id, self.name, doubt, "it might run twice: use force if that is meant")
        if doubt in {Fate.SUCCEEDED_BEFORE, Fate.UNREADABLE}:
            self.records.forget(event_id)
        return None

    def _send(self, body: str, tenant: str | None) -> None:
        more: Any = {TENANT: tenant} if tenant else {}
        clients.sqs().send_message(QueueUrl=self._queue, MessageBody=body, **more)

    def _unlisted(self, messages: Sequence[DeadMessage]) -> list[DeadLetter]:
        """Show messages as letters, but those of which a list tells."""
        records = self.records.of(message.id for message in messages)
        found = ((message, records.get(message.id)) for message in messages)
        return [self._letter(message, record) for message, record in found if not self._is_listed(record)]

    def _letter(self, message: DeadMessage, record: Record | None) -> DeadLetter:
        about, row = message.envelope, None if record is None else row_of(record)
        return DeadLetter(
            id=message.id,
            source=self.name,
            state="dead",
            type=about.type if about else "?",
            subject=about.subject if about else None,
            failure=flaw_of(record) or _reason_not_to(row) or self._failure_of(message, row),
            attempts=self._attempts_at(message, row),
            died_at=timestamp(message.sent_at),
            redriven=int(row.redriven or 0) if row else 0,
            expires_at=self.records.leaves_at(message.sent_at),
            history=read_history(row.history) if row else [],
            doubt=self.records.doubt_of(record, message.id),
            payload=about.payload if about else message.body,
        )

    def _is_listed(self, record: Record | None) -> bool:
        """Answer whether a list tells of what this is the record of."""
        raise NotImplementedError

    def _failure_of(self, message: DeadMessage, record: IdempotencyRow | None) -> Failure:
        raise NotImplementedError

    def _attempts_at(self, message: DeadMessage, record: IdempotencyRow | None) -> int:
        raise NotImplementedError


def _reason_not_to(record: IdempotencyRow | None) -> Failure | None:
    """Return why a message is not to be sent again; None if nothing says so."""
    if record is None:
        return None
    if record.status == COMPLETED:
        return Failure(
            FailureKind.PERMANENT, "HandledBefore", "its effect has happened: this is a copy, to be discarded"
        )
    copy = became_of(record)
    return Failure(FailureKind.PERMANENT, "Replaced", f"{copy} took its place: discard it") if copy else None
