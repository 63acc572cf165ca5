"""The parts into which a consumer splits its event: messages that leave for another consumer before the commit."""

from __future__ import annotations

from mailroom import telemetry
from mailroom.clock import timestamp
from mailroom.failures import Unavailable
from mailroom.outbox.event import Envelope, EventRefused, Part, payload_of
from mailroom.outbox.limits import EventTooLarge
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_MESSAGE_BYTES, MAX_TENANT, Message, Sink, is_tenant


class PartsNotSent(Unavailable):
    """Not all parts of an event were handed on; nothing was written, and all of them leave again."""


class Parts:
    """What one unit of work hands on.

    Parameters
    ----------
    sink
        Where the parts go; None where nothing is split.
    """

    def __init__(self, runtime: Runtime, sink: Sink | None) -> None:
        self._runtime = runtime
        self._sink = sink
        self._messages: dict[str, Message] = {}

    def add(self, part: Part, *, of: Envelope, key: str, tenant: str | None) -> str:
        """Collect a part of an event; answer its id.

        Raises
        ------
        EventRefused
            If it could never be delivered, its key was used before, or no queue takes the tenant's name.
        """
        part_id = f"{of.id}/{key}"
        if part_id in self._messages:
            raise EventRefused(f"two parts of one event have the key {key!r}; each needs its own")
        if tenant is not None and not is_tenant(tenant):
            raise EventRefused(f"{tenant!r} is no tenant: take 1 to {MAX_TENANT} ASCII letters, digits or punctuation")
        envelope = Envelope(
            id=part_id,
            type=part.type,
            source=self._runtime.settings.source,
            subject=of.subject,
            time=timestamp(self._runtime.clock.now()),
            payload=payload_of(part),
            traceparent=telemetry.traceparent(),
        )
        body = envelope.to_json()
        if len(body.encode()) > MAX_MESSAGE_BYTES:
            raise EventTooLarge(f"{part.type} takes {len(body.encode())} bytes, and its queue {MAX_MESSAGE_BYTES}")
        self._messages[part_id] = Message(body, tenant)
        return part_id

    def hand_on(self) -> None:
        """Send what was collected.

        Raises
        ------
        PartsNotSent
            If not all of it was taken.
        LookupError
            If there is no queue for it here.
        """
        if not self._messages:
            return
        if self._sink is None:
            raise LookupError("there is no queue for parts here: only a consumer splits its event")
        failures = self._sink.put(list(self._messages.values()))
        if failures:
            raise PartsNotSent(
                f"{len(failures)} of {len(self._messages)} parts were not handed on: {failures[0].message}"
            )
        self.forget()

    def forget(self) -> None:
        """Take back what was collected."""
        self._messages = {}
