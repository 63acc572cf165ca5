"""Events: what a team declares, and the envelope that carries it.

On the wire an event is CloudEvents 1.0 in its JSON format
(https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError, to_json
from ulid import ULID

from mailroom.clock import Clock, aware, epoch_milliseconds
from mailroom.failures import Permanent

SHARDS = 8
"""How many partitions the pending events are spread over: constant for a table's life."""

SPEC_VERSION = "1.0"
_ALWAYS = f'{{"specversion":"{SPEC_VERSION}","datacontenttype":"application/json",'
MAX_DEPTH = 32
"""DynamoDB nests no deeper, and neither does any consumer that stores what it received.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""
MAX_INTEGER = 2**53 - 1
"""Beyond it JSON readers disagree (RFC 8259, section 6)."""

_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

_MAX_TYPE = 128
"""EventBridge takes no longer `DetailType`.
https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutEventsRequestEntry.html"""
MAX_ID_BYTES = 1024
"""What a sort key takes at most: no row of an outbox can have a longer id.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""


class EventRefused(ValueError):
    """An event cannot be delivered as it is; nothing was written. The message says why."""


class Event(BaseModel):
    """The base of a team's events: `class RepoCreated(Event, type="repo.created")`, its fields the payload."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)
    type: ClassVar[str]

    def __init_subclass__(cls, type: str | None = None, **kwargs: Any) -> None:  # noqa: A002 - CloudEvents' word
        super().__init_subclass__(**kwargs)
        if type is not None:
            if not 0 < len(type) <= _MAX_TYPE:
                raise ValueError(f"{cls.__name__}: an event's type has 1 to {_MAX_TYPE} characters, not {len(type)}")
            cls.type = type


class Part(Event):
    """What a consumer splits its event into: `class Delivery(Part, type="webhook.delivery")`.

    Each part is a message for the one consumer that waits for its type, on that consumer's own queue: a part that
    fails is tried again without the others. Parts are no events: they are in no outbox, and reach nobody else.
    """


@dataclass(frozen=True, slots=True)
class Envelope:
    """An event on its way: CloudEvents' attributes and the payload, already JSON.

    Parameters
    ----------
    id
        ULID, `-`, shard: sorts by age and says where in the outbox it lies.
    subject
        What the event is about, e.g. `repos/42`. Events of a subject are published in order.
    after
        The id of the subject's previous event.
    parent
        The id of the event that this one is the mended copy of.
    redriven
        How often an operator brought it back from the dead. It is not on the wire.
    """

    id: str
    type: str
    source: str
    subject: str | None
    time: str
    payload: str
    traceparent: str | None = None
    after: str | None = None
    redriven: int = 0
    parent: str | None = None
    _json: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def shard(self) -> int:
        """The shard of the outbox that the event lies in."""
        return shard_of_id(self.id)

    def to_json(self) -> str:
        """Write the CloudEvent; it is written once, whoever asks for its size or its text."""
        written = self._json
        if written is None:
            written = self._write()
            object.__setattr__(self, "_json", written)
        return written

    def _write(self) -> str:
        attributes: dict[str, str] = {
            "id": self.id,
            "type": self.type,
            "source": self.source,
            "time": self.time,
        }
        if self.subject:
            attributes["subject"] = self.subject
        if self.traceparent:
            attributes["traceparent"] = self.traceparent
        if self.after:
            attributes["after"] = self.after
        if self.parent:
            attributes["parent"] = self.parent
        # The payload is JSON already: parsing it only to write it again would cost more than the rest.
        return f'{_ALWAYS}{to_json(attributes)[1:-1].decode()},"data":{self.payload}}}'

    @classmethod
    def from_json(cls, body: str) -> Self:
        """Read a CloudEvent, also one in the envelope in which EventBridge keeps it.

        Raises
        ------
        Permanent
            If the text is no CloudEvent of ours: it never will be.
        """
        try:
            wire = _unwrapped(json.loads(body))
        except (ValueError, RecursionError) as error:
            raise Permanent(f"the message is not JSON: {error}") from error
        if not isinstance(wire, dict):
            raise Permanent(f"the message is no CloudEvent but {type(wire).__name__}")
        missing = [name for name in ("id", "type", "source", "data") if name not in wire]
        if missing:
            raise Permanent(f"the message is no CloudEvent: it lacks {', '.join(missing)}")
        texts = {name: wire[name] for name in _ATTRIBUTES if wire.get(name) is not None}
        wrong = [name for name, text in texts.items() if not isinstance(text, str)]
        wrong += [name for name in _REQUIRED if not texts.get(name)]
        if wrong:
            raise Permanent(f"the message is no CloudEvent: its {wrong[0]} is no text")
        if len(texts["id"].encode("utf-8", "replace")) > MAX_ID_BYTES:
            raise Permanent(f"the message is no event of an outbox: its id has more than {MAX_ID_BYTES} bytes")
        payload = _compact(wire["data"])
        try:
            "".join((*texts.values(), payload)).encode()
        except UnicodeEncodeError as error:
            surrogate = ord(error.object[error.start])
            raise Permanent(f"the message has the character U+{surrogate:04X}, which nothing can store") from error
        return cls(
            id=texts["id"],
            type=texts["type"],
            source=texts["source"],
            subject=texts.get("subject"),
            time=texts.get("time", ""),
            payload=payload,
            traceparent=texts.get("traceparent"),
            after=texts.get("after"),
            parent=texts.get("parent"),
        )


def bare(body: str) -> str:
    """Return the text of an event without the envelope in which EventBridge keeps it; any other text as it is."""
    try:
        wire = json.loads(body)
    except (ValueError, RecursionError):
        return body
    inside = _unwrapped(wire)
    return body if inside is wire else _compact(inside)


def _unwrapped(wire: Any) -> Any:
    """Return the event in EventBridge's own, as it leaves it in a target's dead-letter queue.

    No attribute of a CloudEvent has a hyphen, so that none of ours is taken for one.
    https://docs.aws.amazon.com/eventbridge/latest/ref/overiew-event-structure.html
    """
    return wire["detail"] if isinstance(wire, dict) and "detail-type" in wire and "detail" in wire else wire


_REQUIRED = ("id", "type", "source")
_ATTRIBUTES = (*_REQUIRED, "subject", "time", "traceparent", "after", "parent")


def payload_of(event: Event) -> str:
    """Write an event's payload as JSON.

    Raises
    ------
    EventRefused
        If it nests too deeply, has integers that JSON readers disagree on, characters that cannot be sent,
        or numbers or objects that JSON cannot write.
    NaiveMoment
        If it has a moment without a time zone.
    """
    payload = event.model_dump(mode="python")
    _check_value(payload, type(event).__name__, depth=1)
    try:
        return event.model_dump_json()
    except PydanticSerializationError as error:
        raise EventRefused(f"{type(event).__name__} cannot be written as JSON: {error}") from error


def shard_of_subject(subject: str) -> int:
    """Answer the shard of a subject: the same in every process and for ever."""
    return zlib.crc32(subject.encode()) % SHARDS


def shard_of_id(event_id: str) -> int:
    """Answer the shard that an event's id names.

    Raises
    ------
    ValueError
        If it is no event id.
    """
    ulid, _, shard = event_id.rpartition("-")
    if len(ulid) != 26 or not re.fullmatch("[0-9]{2}", shard) or int(shard) >= SHARDS:
        raise ValueError(f"{event_id!r} is no event id: a ULID, a hyphen and a shard below {SHARDS:02d}")
    return int(shard)


def moment_of_id(event_id: str) -> datetime:
    """Answer when an event was written, by the clock that made its id.

    Raises
    ------
    ValueError
        If it is no event id.
    """
    shard_of_id(event_id)
    written_at: datetime = ULID.from_str(event_id.rpartition("-")[0]).datetime
    return written_at


def id_of_copy(event_id: str, message_id: str, sent_at: datetime) -> str:
    """Return the id of the mended copy of the event in a message: the same, however often it is asked for.

    It is later than the event's own; one that is no event's id says nothing of its time, and the message's own counts.
    """
    digest = hashlib.sha256(message_id.encode()).digest()
    step = 1 + int.from_bytes(digest[:_STEP_BYTES], "big")
    try:
        shard, before = shard_of_id(event_id), int(ULID.from_str(event_id.rpartition("-")[0]))
    except ValueError:
        shard, before = digest[-1] % SHARDS, epoch_milliseconds(sent_at) << _RANDOM_BITS
    return f"{ULID.from_int(before + step)}-{shard:02d}"


_RANDOM_BITS = 80
"""What a ULID has beside the time. https://github.com/ulid/spec"""
_STEP_BYTES = 8
"""Enough that no two steps are the same, few enough that they don't carry into the clock's part of the id."""


class EventIds:
    """Makes event ids: later than the subject's previous one, whatever the clocks say."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random

    def next(self, subject: str | None, after: str | None) -> tuple[str, datetime]:
        """Answer a new id and the moment it was made.

        Raises
        ------
        EventRefused
            If the subject has characters that cannot be sent.
        """
        _check_value(subject, "the subject", depth=1)
        now = self._clock.now()
        ulid = int.from_bytes(epoch_milliseconds(now).to_bytes(6, "big") + self._random.randbytes(10), "big")
        if after is not None:
            # By chance, since two may follow one event: its successor, and its mended copy should it die.
            step = 1 + int.from_bytes(self._random.randbytes(_STEP_BYTES), "big")
            ulid = max(ulid, int(ULID.from_str(after.rpartition("-")[0])) + step)
        shard = self._random.randrange(SHARDS) if subject is None else shard_of_subject(subject)
        return f"{ULID.from_int(ulid)}-{shard:02d}", now


def _check_value(value: object, path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise EventRefused(f"{path} nests deeper than {MAX_DEPTH} levels")
    match value:
        case dict():
            for key, inner in value.items():
                _check_value(key, f"a key of {path}", depth)
                _check_value(inner, f"{path}.{key}", depth + 1)
        case list() | tuple() | set() | frozenset():
            for position, inner in enumerate(value):
                _check_value(inner, f"{path}[{position}]", depth + 1)
        case bool():
            pass
        case int() if abs(value) > MAX_INTEGER:
            raise EventRefused(f"{path} is beyond ±(2^53 - 1), where JSON readers disagree")
        case datetime():
            aware(value, path)
        case float() if not math.isfinite(value):
            raise EventRefused(f"{path} is {value}, which JSON cannot write")
        case str() if unsendable := first_unsendable(value):
            raise EventRefused(f"{path} has the character U+{ord(unsendable):04X}, which cannot be sent")
        case _:
            pass


def first_unsendable(text: str) -> str | None:
    """Answer the first character that some destination refuses, or None.

    These are lone surrogates and what SQS does not take: see `MessageBody` at
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html
    """
    if text.isascii() and text.isprintable():
        return None
    for character in text:
        code = ord(character)
        if code < 0x20 and character not in "\t\n\r":
            return character
        if 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF):
            return character
    return None
