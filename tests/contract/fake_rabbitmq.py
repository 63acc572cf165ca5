"""A RabbitMQ that says what it is told to say: as much of AMQP 0-9-1 as a publisher meets, over a real connection.

For what the real broker cannot be made to do at a given message. The real one is in tests/e2e/test_brokers.py.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

from pika import BasicProperties, spec
from pika.frame import Body, Header, Heartbeat, Method, ProtocolHeader, decode_frame

HOST = "127.0.0.1"
_MAX_FRAME = 131_072
_CAPABILITIES = {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True}


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as the broker got it."""

    exchange: str
    routing_key: str
    mandatory: bool
    properties: BasicProperties
    body: str

    @property
    def id(self) -> str:
        """The message's id."""
        return str(self.properties.message_id)


Answer = Callable[["Conversation", int, Delivery], None]
"""Answers the message with this delivery tag."""


class HungUp(Exception):
    """The broker closes the connection without a word."""


class FakeRabbitMq:
    """A broker on a port of 127.0.0.1, which takes every message unless `answer` says otherwise."""

    def __init__(self, thread_name: str = "rabbitmq") -> None:
        self.delivered: list[Delivery] = []
        """What was taken, in order."""
        self.connections = 0
        self.open: list[Conversation] = []
        self.answer: Answer = take
        self.greeting: Callable[[Conversation], None] = lambda _: None
        """What happens before the broker says anything."""
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread_name = thread_name
        self._threads = [Thread(target=self._accept, name=thread_name, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Close every connection and take no more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(5)

    def hang_up(self) -> None:
        """Close every connection without a word."""
        for conversation in list(self.open):
            conversation.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = Thread(target=self._talk, name=self._thread_name, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _talk(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            conversation = Conversation(self, connection)
            self.open.append(conversation)
            try:
                conversation.run()
            except HungUp:
                conversation.fall_silent()
            finally:
                self.open.remove(conversation)


class Conversation:
    """One connection, as the broker leads it."""

    def __init__(self, broker: FakeRabbitMq, connection: socket.socket) -> None:
        self._broker = broker
        self._connection = connection
        self._tag = 0
        self._closed = False
        self._publish: Any = None
        self._properties: Any = None
        self._left = 0
        self._body = b""

    def run(self) -> None:
        """Talk until the other side hangs up."""
        unread = b""
        while received := self._connection.recv(_MAX_FRAME):
            unread += received
            while True:
                length, frame = decode_frame(unread)
                if frame is None:
                    break
                unread = unread[length:]
                self._hear(frame)

    def say(self, method: Any, channel: int = 1, *more: Any) -> None:
        """Send a method, and frames after it; who has closed hears nothing more."""
        self._closed = self._closed or isinstance(method, (spec.Channel.Close, spec.Connection.Close))
        self._connection.sendall(b"".join(each.marshal() for each in (Method(channel, method), *more)))

    def fall_silent(self) -> None:
        """Say no more: the other side reads what was said before, and hangs up."""
        self._connection.shutdown(socket.SHUT_WR)
        while self._connection.recv(_MAX_FRAME):
            pass

    def cut(self) -> None:
        """Close the connection without a word."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _hear(self, frame: Any) -> None:
        match frame:
            case ProtocolHeader():
                self._broker.greeting(self)
                features = {
                    "capabilities": {"publisher_confirms": True, "basic.nack": True, "connection.blocked": True}
                }
                self.say(spec.Connection.Start(server_properties=features), 0)
            case Method():
                self._hear_method(frame.method)
            case Header():
                self._properties, self._left, self._body = frame.properties, frame.body_size, b""
                self._take_when_whole()
            case Body():
                self._body += frame.fragment
                self._left -= len(frame.fragment)
                self._take_when_whole()
            case Heartbeat():
                pass

    def _hear_method(self, method: Any) -> None:
        match method:
            case spec.Connection.StartOk():
                self.say(spec.Connection.Tune(0, _MAX_FRAME, 60), 0)
            case spec.Connection.Open():
                self.say(spec.Connection.OpenOk(), 0)
            case spec.Channel.Open():
                self.say(spec.Channel.OpenOk())
            case spec.Confirm.Select():
                self.say(spec.Confirm.SelectOk())
            case spec.Basic.Publish():
                self._publish = method
            case spec.Channel.Close():
                self.say(spec.Channel.CloseOk())
            case spec.Connection.Close():
                self.say(spec.Connection.CloseOk(), 0)

    def _take_when_whole(self) -> None:
        if self._left or self._closed:
            return
        self._tag += 1
        asked = self._publish
        delivery = Delivery(
            asked.exchange, asked.routing_key, bool(asked.mandatory), self._properties, self._body.decode()
        )
        self._broker.answer(self, self._tag, delivery)

    def keep(self, delivery: Delivery) -> None:
        """Take a message."""
        self._broker.delivered.append(delivery)


def take(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Take a message, and say so."""
    conversation.keep(delivery)
    conversation.say(spec.Basic.Ack(tag))


def take_silently(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Take a message, and say nothing."""
    conversation.keep(delivery)


def refuse(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Answer that a queue could not take it."""
    conversation.say(spec.Basic.Nack(tag))


def give_back(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Give a message back that no binding takes, and confirm it, as RabbitMQ does."""
    body = delivery.body.encode()
    returned = spec.Basic.Return(312, "NO_ROUTE", delivery.exchange, delivery.routing_key)
    conversation.say(returned, 1, Header(1, len(body), delivery.properties), Body(1, body))
    conversation.say(spec.Basic.Ack(tag))


def close_channel(code: int, text: str) -> Answer:
    """Make the answer that closes the channel."""
    return lambda conversation, _, __: conversation.say(spec.Channel.Close(code, text, 0, 0))


def close_connection(code: int, text: str) -> Answer:
    """Make the answer that closes the connection."""
    return lambda conversation, _, __: conversation.say(spec.Connection.Close(code, text, 0, 0), 0)


def block(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Say that nothing is taken for the time being, and read on without a word."""
    conversation.say(spec.Connection.Blocked("low on memory"), 0)


def hang_up(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Close the connection without a word."""
    raise HungUp


def hang_up_after_taking(conversation: Conversation, tag: int, delivery: Delivery) -> None:
    """Take a message, and close the connection before saying so."""
    conversation.keep(delivery)
    raise HungUp


@contextmanager
def fake_rabbitmq(thread_name: str = "rabbitmq") -> Iterator[FakeRabbitMq]:
    """Run a broker inside the block, in threads of this name."""
    broker = FakeRabbitMq(thread_name)
    try:
        yield broker
    finally:
        broker.close()
