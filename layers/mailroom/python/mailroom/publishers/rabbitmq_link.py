"""The way to RabbitMQ: a connection that is made when it is needed, and what its answers mean for events.

Nothing but `rabbitmq.py` imports this module, when it publishes: pika is in a layer of its own.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from pika import ConnectionParameters, PlainCredentials, SSLOptions

from mailroom.clock import Clock
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope
from mailroom.publishers.amqp_session import AmqpSession, Message, SessionLost, Verdict
from mailroom.publishers.broker import AUTHORITY, LOGIN, Suspect, permanent, unavailable
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.publishers.rabbitmq import SHORT_STRING, RabbitMq
from mailroom.publishers.secret import read_secret

_ADVICE = {
    403: "see that the user and the password of the URL's secret are right, and that the user may write there",
    404: "declare it",
    530: "create it, and let the user in",
}
_GUEST = "guest"
"""Whom RabbitMQ lets in from the same machine, and from nowhere else.
https://www.rabbitmq.com/docs/access-control#default-state"""


class RabbitMqLink:
    """One connection to a broker at a time.

    Parameters
    ----------
    idle
        Seconds after which an unused connection is not trusted any more: between two invocations a function stands
        still, and sends no heartbeat.
    unroutable_after
        Seconds after which an event is tried again that no binding took, or that a queue refused.
    """

    def __init__(self, rabbitmq: RabbitMq, *, clock: Clock, idle: float, unroutable_after: float) -> None:
        self._rabbitmq = rabbitmq
        self._clock = clock
        self._idle = idle
        self._unroutable_after = unroutable_after
        self._session: AmqpSession | None = None
        self._parameters: ConnectionParameters | None = None
        self._used_at = 0.0

    def connect(self, deadline: float) -> None:
        """See that the connection still stands, or make one."""
        if not self._is_trusted():
            self.hang_up()
            self._session = self._connect(deadline)

    def send(self, events: Sequence[Envelope], deadline: float) -> Sequence[Outcome | Suspect]:
        """Publish events and wait for all their confirms at once."""
        session = self._session
        assert session is not None  # noqa: S101 - who sends has connected
        verdicts = session.send(self._rabbitmq.exchange, [Message.of(event) for event in events], deadline=deadline)
        self._used_at = self._clock.monotonic()
        if session.lost is not None:
            self.hang_up()
        return [self._outcome(event, verdicts.get(event.id), session.lost) for event in events]

    def hang_up(self) -> None:
        """Close the connection."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _is_trusted(self) -> bool:
        session = self._session
        return session is not None and self._clock.monotonic() - self._used_at < self._idle and session.is_alive()

    def _connect(self, deadline: float) -> AmqpSession:
        parameters = self._parameters = self._parameters or self._read_parameters()
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise SessionLost("no time was left to connect in")
        parameters.socket_timeout = parameters.stack_timeout = left
        self._parameters = None  # unless it goes well: the secret may have changed by the next time
        try:
            session = AmqpSession(parameters, now=self._clock.monotonic, deadline=deadline)
        except SessionLost as lost:
            raise SessionLost(self._told(lost), lost.code) from lost
        self._parameters = parameters
        return session

    def _read_parameters(self) -> ConnectionParameters:
        rabbitmq = self._rabbitmq
        secret = read_secret(rabbitmq.secret, *LOGIN, may_have=[AUTHORITY]) if rabbitmq.secret else {}
        trusted = ssl.create_default_context(cadata=secret.get(AUTHORITY)) if rabbitmq.tls else None
        return ConnectionParameters(
            host=rabbitmq.host,
            port=rabbitmq.port,
            virtual_host=rabbitmq.vhost,
            credentials=PlainCredentials(secret.get("username", _GUEST), secret.get("password", _GUEST)),
            ssl_options=SSLOptions(trusted, rabbitmq.host) if trusted else None,
            heartbeat=round(2 * self._idle),
        )

    # What it comes to

    def _outcome(self, event: Envelope, verdict: Verdict | None, lost: SessionLost | None) -> Outcome | Suspect:
        match verdict:
            case Verdict.TAKEN:
                return SENT
            case Verdict.NOT_ROUTED:
                return self._later("Unroutable", f"no queue is bound for the type '{event.type}': bind one")
            case Verdict.REFUSED:
                return self._later("Nack", f"a queue for the type '{event.type}' is full or has failed: make room")
            case Verdict.UNSENDABLE:
                return permanent("Unsendable", f"its type or its source has more than {SHORT_STRING} bytes")
        assert lost is not None  # noqa: S101 - where there is no verdict, the session says why
        if lost.blames_content:
            return Suspect(permanent(lost.name, str(lost)))
        return unavailable(lost.name, self._told(lost))

    def _later(self, type_: str, what: str) -> Failure:
        """Make a failure of one type's queues, which stops no other: docs/decisions/unroutable.md."""
        message = f"exchange '{self._rabbitmq.exchange}': {what}"
        return Failure(FailureKind.TRANSIENT, type_, message, retry_after=self._unroutable_after)

    def _told(self, lost: SessionLost) -> str:
        where = f"{self._rabbitmq.host}:{self._rabbitmq.port}"
        advice = _ADVICE.get(lost.code or 0)
        return f"RabbitMQ at {where}: {lost}" + (f"; {advice}" if advice else "")
