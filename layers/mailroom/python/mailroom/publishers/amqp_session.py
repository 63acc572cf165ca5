"""A connection to RabbitMQ that sends a whole batch before it waits for the first confirm.

pika's blocking channel waits for each confirm by itself: on a loopback interface that is 200 messages a second in place
of 3,100. So this is pika's other connection, whose loop runs for as long as there is something to wait for.

Confirms and returns: https://www.rabbitmq.com/docs/confirms
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pika import BasicProperties, ConnectionParameters
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import AMQPError, ProbableAccessDeniedError, ProbableAuthenticationError

from mailroom.failures import Unavailable
from mailroom.outbox.event import Envelope
from mailroom.publishers.broker import CLOUD_EVENT

logging.getLogger("pika").setLevel(logging.CRITICAL)
# Whatever happens to a connection is in the outcome of what was sent over it, and logged with that.

_FAREWELL = 0.5
"""Seconds that the broker is given to say goodbye."""
_PERSISTENT = 2
_CONTENT_REFUSED = frozenset({406, 501, 502, 505})
"""A message that is larger than the broker takes, or that it cannot read.
https://www.rabbitmq.com/docs/channels#common-errors https://www.rabbitmq.com/amqp-0-9-1-reference#constants"""
_REFUSED = {ProbableAuthenticationError: 403, ProbableAccessDeniedError: 530}
"""How pika tells of a login or a virtual host that the broker refuses; their texts have the broker's own."""


class SessionLost(Unavailable):
    """There is no connection to the broker, or no longer; the message says why.

    Parameters
    ----------
    code
        AMQP's reply code, where the broker said why.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code

    @property
    def blames_content(self) -> bool:
        """Whether one of the messages was at fault."""
        return self.code in _CONTENT_REFUSED

    @property
    def name(self) -> str:
        """What failures are called that come of it."""
        return type(self).__name__ if self.code is None else f"AMQP {self.code}"

    @classmethod
    def by(cls, error: BaseException | None) -> SessionLost:
        """Tell what an error of pika's means."""
        if error is None:
            return cls("the connection was closed")
        cause = _root(error)
        code = next((code for kind, code in _REFUSED.items() if isinstance(cause, kind)), None)
        code = getattr(cause, "reply_code", code)
        return cls(getattr(cause, "reply_text", "") or str(cause) or type(cause).__name__, code)


class Verdict(Enum):
    """What the broker says of a message."""

    TAKEN = "taken"
    NOT_ROUTED = "not routed"
    REFUSED = "refused"
    UNSENDABLE = "unsendable"


@dataclass(frozen=True, slots=True)
class Message:
    """What is published.

    Parameters
    ----------
    id
        Of its own in a batch: a message that is returned is known by it.
    """

    id: str
    routing_key: str
    body: bytes
    properties: BasicProperties

    @classmethod
    def of(cls, event: Envelope) -> Message:
        """Make a persistent message of an event: routed by its type, and a CloudEvent as every destination gets it."""
        properties = BasicProperties(  # type: ignore[no-untyped-call]
            app_id=event.source,
            content_type=CLOUD_EVENT,
            delivery_mode=_PERSISTENT,
            headers={"subject": event.subject} if event.subject else None,
            message_id=event.id,
            type=event.type,
        )
        return cls(event.id, event.type, event.to_json().encode(), properties)


class AmqpSession:
    """One connection and one channel in confirm mode, for one thread at a time.

    Parameters
    ----------
    parameters
        Whose time-outs end the attempt to connect.
    deadline
        The `now()` until which the channel has to be there.

    Raises
    ------
    SessionLost
        If it does not.
    """

    def __init__(self, parameters: ConnectionParameters, *, now: Callable[[], float], deadline: float) -> None:
        self.lost: SessionLost | None = None
        self._now = now
        self._blocked_because: str | None = None
        self._published = 0
        self._waiting: dict[int, Message] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._channel: Any = None
        self._ready = False
        self._loop = IOLoop()
        self._connection = SelectConnection(
            parameters,
            on_open_callback=self._on_open,
            on_open_error_callback=lambda _, error: self._lose(SessionLost.by(error)),
            on_close_callback=lambda _, error: self._lose(SessionLost.by(error)),
            custom_ioloop=self._loop,
        )
        self._connection.add_on_connection_blocked_callback(self._on_blocked)
        self._connection.add_on_connection_unblocked_callback(self._on_unblocked)
        self._run_until(deadline + _FAREWELL)  # pika's own time-outs come first: its way out of a connection half made
        if not self._ready:
            lost = self.lost or SessionLost("the broker did not answer in time")
            self.close()
            raise lost

    def is_alive(self) -> bool:
        """Look at what has come meanwhile, and answer whether the connection still stands."""
        if self.lost is None:
            self._run_until(self._now())
        return self.lost is None

    def send(self, exchange: str, messages: Sequence[Message], *, deadline: float) -> dict[str, Verdict]:
        """Publish messages and wait for their confirms; answer what the broker says, by id.

        Where it says nothing, the connection was lost, or time is up: `lost` tells which. It is of no more use then.
        """
        self._verdicts, self._waiting = {}, {}
        for message in messages:
            self._publish(exchange, message)
        if self._waiting and self.lost is None:
            self._run_until(deadline)
        if self._waiting and self.lost is None:
            self.lost = SessionLost(self._why_late())
        return self._verdicts

    def close(self) -> None:
        """Say goodbye, and wait no longer than a moment for the answer."""
        if not self._connection.is_closed:
            if not self._connection.is_closing:
                self._connection.close()
            self._run_until_closed()
        if not self._connection.is_closed:
            # The broker does not answer, or reads nothing while it is short of memory or disk space.
            self._connection._terminate_stream(SessionLost("given up"))
            self._run_until_closed()
        self._loop.close()

    # The loop

    def _run_until(self, deadline: float) -> None:
        timer = self._loop.call_later(max(deadline - self._now(), 0), self._loop.stop)
        self._loop.start()
        self._loop.remove_timeout(timer)

    def _run_until_closed(self) -> None:
        self._run_until(self._now() + _FAREWELL)

    # What comes

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda _, error: self._lose(SessionLost.by(error)))
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirm, callback=self._on_ready)

    def _on_ready(self, _: Any) -> None:
        self._ready = True
        self._loop.stop()

    def _on_blocked(self, _: Any, frame: Any) -> None:
        self._blocked_because = str(frame.method.reason)

    def _on_unblocked(self, *_: Any) -> None:
        self._blocked_because = None

    def _on_return(self, _channel: Any, method: Any, properties: BasicProperties, _body: bytes) -> None:
        self._verdicts[str(properties.message_id)] = Verdict.NOT_ROUTED

    def _on_confirm(self, frame: Any) -> None:
        method = frame.method
        verdict = Verdict.TAKEN if method.NAME == "Basic.Ack" else Verdict.REFUSED
        for tag in self._waiting_up_to(method.delivery_tag) if method.multiple else [method.delivery_tag]:
            message = self._waiting.pop(tag)
            self._verdicts.setdefault(message.id, verdict)  # a message that was returned is confirmed too
        if not self._waiting:
            self._loop.stop()

    def _waiting_up_to(self, tag: int) -> list[int]:
        return [each for each in self._waiting if each <= tag]

    def _lose(self, lost: SessionLost) -> None:
        self.lost = self.lost or lost
        self._loop.stop()

    # What goes

    def _publish(self, exchange: str, message: Message) -> None:
        if self.lost is not None:
            return
        try:
            self._channel.basic_publish(exchange, message.routing_key, message.body, message.properties, mandatory=True)
        except AMQPError as error:
            if not self._channel.is_open:
                self._lose(SessionLost.by(error))
                return
            self._verdicts[message.id] = Verdict.UNSENDABLE  # pika writes nothing of what it cannot write whole
            return
        self._published += 1
        self._waiting[self._published] = message

    def _why_late(self) -> str:
        late = f"{len(self._waiting)} messages were not confirmed in time"
        return f"{late}: the broker takes none now, {self._blocked_because}" if self._blocked_because else late


def _root(error: BaseException) -> BaseException:
    """Answer the error that pika's own errors are wrapped around."""
    for inner in reversed([*getattr(error, "exceptions", ()), *error.args]):
        if isinstance(inner, BaseException):
            return _root(inner)
    inner = getattr(error, "exception", None)
    return _root(inner) if isinstance(inner, BaseException) else error
