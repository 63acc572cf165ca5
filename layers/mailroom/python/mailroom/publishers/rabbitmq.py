"""Delivery to an exchange of RabbitMQ: `amqp://host:port/vhost?exchange=events&secret=name`, or `amqps://…`.

Nothing is declared: exchange, queues and bindings are the team's. See docs/decisions/unroutable.md for events that no
binding takes, or a queue refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mailroom.needs import Need
from mailroom.outbox.event import Envelope
from mailroom.publishers.broker import BrokerPublisher
from mailroom.publishers.place import Place
from mailroom.publishers.publisher import Limits
from mailroom.publishers.secret import secret_need

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

_PORTS = {"amqp": 5672, "amqps": 5671}
"""https://www.rabbitmq.com/docs/networking#ports"""
_MEGABYTE = 1_000_000
SHORT_STRING = 255
"""Bytes of a routing key. https://www.rabbitmq.com/amqp-0-9-1-reference#domain.shortstr"""
_FRAMES = 1_000
"""More than a message's method and header take, with their frames."""


@dataclass(frozen=True, slots=True)
class RabbitMq:
    """An exchange, and how to get there.

    Parameters
    ----------
    secret
        The name of the secret that has `username` and `password`, and `ca` if the broker's certificate is signed by
        nobody whom the world knows.
    """

    host: str
    port: int
    vhost: str
    exchange: str
    secret: str | None
    tls: bool

    @classmethod
    def at(cls, place: Place) -> Self:
        """Read it from a URL.

        Raises
        ------
        PublisherUrlError
            If it is none.
        """
        server = place.server(port=_PORTS[place.scheme], needs=["exchange"], may_have=["secret"])
        ((host, port),) = server.hosts
        return cls(
            host=host.strip("[]"),  # an IPv6 address, which neither sockets nor certificates know in brackets
            port=port,
            vhost=server.path or "/",
            exchange=server.options["exchange"],
            secret=server.options.get("secret"),
            tls=place.scheme == "amqps",
        )


class RabbitMqPublisher(BrokerPublisher):
    """Publishes persistent messages, mandatory and confirmed, to one exchange; the routing key is the event's type."""

    # There is no limit to a batch; a page of the outbox is one.
    limits: ClassVar = Limits(entries=100, entry_bytes=_MEGABYTE, call_bytes=_MEGABYTE, type_bytes=SHORT_STRING)

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is an exchange."""
        RabbitMq.at(place)

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer the right to read the secret, where one is named."""
        secret = RabbitMq.at(place).secret
        return () if secret is None else (secret_need(secret),)

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for an exchange."""
        from mailroom.publishers.rabbitmq_link import RabbitMqLink  # noqa: PLC0415 - who does not publish has no pika

        timings = runtime.timings
        link = RabbitMqLink(
            RabbitMq.at(place),
            clock=runtime.clock,
            idle=timings.broker_idle,
            unroutable_after=timings.unroutable_after,
        )
        return cls(link, clock=runtime.clock, timeout=timings.broker_timeout)

    @staticmethod
    def size(event: Envelope) -> int:
        """Answer about what a message takes on the wire."""
        return len(event.to_json().encode()) + _FRAMES
