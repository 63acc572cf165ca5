"""A queue in memory as a source of messages: for tests, and for a laptop without AWS."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from threading import Lock

from mailroom.clock import Clock, epoch_milliseconds
from mailroom.failures import Failure
from mailroom.sources.source import MAX_BATCH, MAX_RECEIVES, TENANT, Message, Record, stale

_LOOK_EVERY = 0.1
"""Seconds between two looks of a receive that waits."""


@dataclass(slots=True)
class _Message:
    id: str
    body: str
    tenant: str | None
    visible_from: float
    sent_ms: int
    first_received_ms: int = 0
    receives: int = 0
    receipt: str | None = None


class InMemorySource:
    """A queue that lives as long as its process; many threads may use it.

    Parameters
    ----------
    max_receives
        Deliveries after which a message is dead.
    """

    def __init__(self, clock: Clock, *, max_receives: int = MAX_RECEIVES) -> None:
        self._clock = clock
        self._max_receives = max_receives
        self._messages: dict[str, _Message] = {}
        self._dead: list[str] = []
        self._numbers = count(1)
        self._lock = Lock()

    def send(self, *bodies: str) -> list[str]:
        """Put messages in; answer their ids."""
        with self._lock:
            return [self._add(Message(body)) for body in bodies]

    def put(self, messages: Sequence[Message]) -> list[Failure]:
        """Put messages in: see `Sink`. Whose they are is kept, and makes no difference here."""
        with self._lock:
            for message in messages:
                self._add(message)
        return []

    @property
    def visible(self) -> list[str]:
        """The bodies of the messages that a receive could answer now."""
        with self._lock:
            return [message.body for message in self._visible()]

    @property
    def hidden(self) -> list[str]:
        """The bodies of the messages that somebody holds, or that wait."""
        with self._lock:
            visible = {message.id for message in self._visible()}
            return [message.body for message in self._messages.values() if message.id not in visible]

    @property
    def dead(self) -> list[str]:
        """The bodies of the messages that were delivered too often."""
        with self._lock:
            self._bury()
            return list(self._dead)

    def receive(self, limit: int, *, wait: int, hidden: int) -> list[Record]:
        """Answer up to so many messages: see `Source`."""
        until = self._clock.monotonic() + wait
        while True:
            if records := self._deliver(min(limit, MAX_BATCH), hidden):
                return records
            left = until - self._clock.monotonic()
            if left <= 0:
                return []
            self._clock.sleep(min(_LOOK_EVERY, left))

    def hide(self, seconds: Mapping[str, float]) -> dict[str, Failure]:
        """Hide messages for so long: see `Source`."""
        with self._lock:
            now = self._clock.monotonic()
            held, failed = self._held(seconds)
            for receipt, message in held.items():
                if message.visible_from <= now:
                    failed[receipt] = stale("its message is not in flight any more")
                else:
                    message.visible_from = now + int(seconds[receipt])
            return failed

    def delete(self, receipts: Sequence[str]) -> dict[str, Failure]:
        """Delete messages: see `Source`."""
        with self._lock:
            held, failed = self._held(receipts)
            for message in held.values():
                del self._messages[message.id]
            return failed

    def _add(self, message: Message) -> str:
        message_id = f"message-{next(self._numbers)}"
        now = self._clock.now()
        visible_from, sent_ms = self._clock.monotonic() + message.delay, epoch_milliseconds(now)
        self._messages[message_id] = _Message(message_id, message.body, message.tenant, visible_from, sent_ms)
        return message_id

    def _deliver(self, limit: int, hidden: int) -> list[Record]:
        with self._lock:
            self._bury()
            return [self._delivered(message, hidden) for message in [*islice(self._visible(), limit)]]

    def _delivered(self, message: _Message, hidden: int) -> Record:
        message.receives += 1
        message.first_received_ms = message.first_received_ms or epoch_milliseconds(self._clock.now())
        message.receipt = f"{message.id}/{message.receives}"
        message.visible_from = self._clock.monotonic() + hidden
        return {
            "messageId": message.id,
            "receiptHandle": message.receipt,
            "body": message.body,
            "attributes": {
                "ApproximateFirstReceiveTimestamp": str(message.first_received_ms),
                "ApproximateReceiveCount": str(message.receives),
                "SentTimestamp": str(message.sent_ms),
                **({TENANT: message.tenant} if message.tenant else {}),
            },
            "messageAttributes": {},
            "md5OfBody": hashlib.md5(message.body.encode(), usedforsecurity=False).hexdigest(),
            "eventSource": "aws:sqs",
        }

    def _bury(self) -> None:
        spent = [message for message in self._visible() if message.receives >= self._max_receives]
        for message in spent:
            self._dead.append(self._messages.pop(message.id).body)

    def _visible(self) -> Iterator[_Message]:
        now = self._clock.monotonic()
        return (message for message in self._messages.values() if message.visible_from <= now)

    def _held(self, receipts: Iterable[str]) -> tuple[dict[str, _Message], dict[str, Failure]]:
        """Answer the messages that receipts are good for, and why the others are not."""
        known = {message.receipt: message for message in self._messages.values()}
        held, failed = {}, {}
        for receipt in receipts:
            if receipt in known:
                held[receipt] = known[receipt]
            else:
                failed[receipt] = stale("its message is gone or was delivered anew")
        return held, failed
