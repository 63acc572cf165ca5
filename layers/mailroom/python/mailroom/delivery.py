"""One delivery of one message to a consumer: what is to be done with it, and doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mailroom import telemetry
from mailroom.consumer import Consumer, key_of, names_of
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.idempotency import Superseded, Taken, taken
from mailroom.outbox.event import Envelope, Event
from mailroom.patience import Judged, as_it_counts
from mailroom.returns import returned
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES, Sink, receives_of, sent_at
from mailroom.telemetry import LogEvent
from mailroom.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


class GaveUp(Exception):
    """A message whose attempts are used up: its handler is not called again, and SQS moves it on."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class HandedBack(Exception):
    """A message that there was no time left for, or that has a later moment: nothing was tried.

    Parameters
    ----------
    wait
        Seconds after which it is to come again.
    """

    def __init__(self, message: str, wait: float = 0) -> None:
        super().__init__(message)
        self.wait = wait


class Delivery:
    """One delivery of one message."""

    def __init__(
        self, declaration: Consumer, runtime: Runtime, record: SQSRecord, *, deadline: float, parts: Sink | None
    ) -> None:
        self._declaration = declaration
        self._runtime = runtime
        self._deadline = deadline
        self._in_time = runtime.clock.monotonic() < deadline
        self._parts = parts
        self._receives = receives_of(record.raw_event)
        self._message_id = record.message_id
        self._sent_at = sent_at(record.raw_event)
        self.number = 1
        self.waits = self._receives  # unless the record knows better
        self._record: Taken | None = None
        self._envelope: Envelope | None = None
        self._unreadable: Exception | None = None
        try:
            self._envelope = Envelope.from_json(record.body)
        except Permanent as error:
            self._unreadable = error

    @property
    def key(self) -> str:
        """What the effect happens once for: the event, or the message where no event can be read from it."""
        return key_of(self._envelope, self._message_id)

    def about(self) -> dict[str, str]:
        """Answer what the record of a failure says of it."""
        sent_at = {} if self._sent_at is None else {"sent_at": self._sent_at}
        return names_of(self._envelope, self._message_id) | sent_at

    def hand_back_if_late(self, later: float) -> None:
        """Go no further when the invocation's time is up and the message will come again, or its turn is later.

        Raises
        ------
        HandedBack
            Then.
        """
        if not self._in_time and self._receives < MAX_RECEIVES:
            raise HandedBack("the invocation's time is up")
        if later > 0:
            raise HandedBack("its moment comes later", later)

    def facts(self) -> dict[str, Any]:
        """Answer what log lines say of it."""
        names = names_of(self._envelope, self._message_id) if self._envelope else {}
        return {
            "consumer": self._declaration.name,
            "message_id": self._message_id,
            "attempt": self.number,
            **names,
        }

    def run(self) -> None:
        """Do the work and commit what it collected, unless the message is beyond help."""
        traceparent = self._envelope.traceparent if self._envelope else None
        with telemetry.traced(traceparent, self._runtime.random):
            record = self._record = taken()
            if record is not None:
                self.number = record.attempts
                if self._is_over(record):
                    return
                self._stop_if_late(record)
            self._work()

    def _work(self) -> None:
        event = self._read()
        work = self._unit_of_work()
        try:
            self._declaration(event, work)
            work.commit()
        except Superseded:
            raise
        except Exception as error:
            failure = self._judge(error)
            if self._is_last(failure) and self._is_settled(failure):
                return
            if failure == failure_of(error):
                raise
            raise Judged(failure) from error

    def _judge(self, error: Exception) -> Failure:
        """Return what the failure of this attempt counts as, and note it in the record that is kept of it."""
        record = self._record
        patience = self._runtime.timings.patience_of(self._declaration.patience)
        since, now = record.failing_since if record else None, self._runtime.clock.now()
        failure = as_it_counts(failure_of(error), failing_since=since, patience=patience, now=now)
        if record is not None:
            record.note(waits=failure.kind is FailureKind.UNAVAILABLE)
            self.waits = record.waits
        return failure

    def _is_last(self, failure: Failure) -> bool:
        if failure.kind is FailureKind.UNAVAILABLE:
            return False
        return self._runtime.timings.consumer_backoff.is_over(failure, self.number)

    def _read(self) -> Event:
        if self._envelope is None:
            raise self._unreadable or Permanent("the message is no event")
        return self._declaration.read(self._envelope)

    def _unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(
            self._runtime,
            self._declaration.access,
            cause=self._envelope,
            parts=self._parts,
            deadline=self._deadline,
        )

    def _is_over(self, record: Taken) -> bool:
        """Answer whether the attempts before were the last, and giving up settled it.

        Raises
        ------
        GaveUp
            If they were, and it did not.
        """
        earlier = record.attempts - 1
        if record.before is None:
            return False
        if not self._runtime.timings.consumer_backoff.is_over(record.before, earlier):
            return False
        record.attempts = self.number = earlier
        if self._is_settled(record.before):
            return True
        raise GaveUp(record.before)

    def _is_settled(self, failure: Failure) -> bool:
        """Do what the consumer does when it gives up; should that fail, the next delivery tries it again."""
        if self._declaration.gives_up is None:
            return False
        try:
            event, work = self._read(), self._unit_of_work()
            settled = returned(
                self._declaration.gives_up(event, failure, work), bool, by=f"{self._declaration.name}'s gives_up"
            )
            work.commit(completes=settled)
        except Exception as error:
            telemetry.log_error(LogEvent.NOT_GIVEN_UP, error, **self.facts())
            return False
        telemetry.log(LogEvent.MESSAGE_GIVEN_UP, failure=failure, settled=settled, **self.facts())
        return settled

    def _stop_if_late(self, record: Taken) -> None:
        if not self._in_time:
            record.attempts -= 1
            raise GaveUp(_NEVER_IN_TIME)


_NEVER_IN_TIME = Failure(
    FailureKind.PERMANENT,
    "NeverInTime",
    "there was no time left for it in any of its deliveries: give the consumer a smaller batch_size or more timeout",
)
