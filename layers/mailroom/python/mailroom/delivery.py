"""One delivery of one message to a consumer: what is to be done with it, and doing it."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from mailroom import telemetry
from mailroom.clock import epoch_milliseconds
from mailroom.consumer import Consumer, key_of, names_of
from mailroom.failures import Failure, FailureKind, Permanent, failure_of
from mailroom.idempotency import ENDED_SILENTLY, Superseded, Taken, taken
from mailroom.outbox.event import Envelope, Event
from mailroom.patience import RENEWED_FROM, Judged, as_it_counts
from mailroom.retry import Backoff
from mailroom.returns import returned
from mailroom.runtime import Runtime
from mailroom.sources.source import MAX_RECEIVES, Sink, receives_of, sent_at
from mailroom.telemetry import LogEvent
from mailroom.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


_NEVER_IN_TIME = Failure(
    FailureKind.PERMANENT,
    "NeverInTime",
    "there was no time left for it in any of its deliveries: give the consumer a smaller batch_size or more timeout",
)


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


class EndedSilently(HandedBack):
    """A message in whose attempt before the function died: it waits as if its handler had failed, and is not tried."""

    failure = ENDED_SILENTLY


@dataclass(frozen=True, slots=True)
class Run:
    """Call the handler."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Call the handler no more.

    Parameters
    ----------
    settles
        The consumer may settle the matter first: see `GivesUp`.
    """

    failure: Failure
    settles: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """Call the handler later, since the function died in the attempt before.

    Parameters
    ----------
    seconds
        What is left of the wait that a failure would have had.
    """

    seconds: float


def decide(
    claim: Taken, *, in_time: bool, receives: int, now_ms: int, backoff: Backoff, random: Random
) -> Run | GiveUp | Wait:
    """Return what to do in a delivery; whatever is not `Run` is no attempt.

    Parameters
    ----------
    claim
        What is known of the attempts before; it counts this one.
    in_time
        Whether the invocation has time left for it.
    receives
        How often the message was delivered, this time included.
    """
    earlier, before = claim.attempts - 1, claim.before
    if before is not None and backoff.is_over(before, earlier):
        return GiveUp(before, settles=True)
    if not in_time:
        return GiveUp(_NEVER_IN_TIME, settles=False)
    if before != ENDED_SILENTLY:
        return Run()
    if claim.ended_at is not None:
        # Chance lengthens the wait once: a fresh copy of a message comes before its moment, and waits for what is left.
        wait = backoff.shortest_delay(earlier - 1) if claim.noticed else backoff.delay(earlier - 1, random)
        left = wait - (now_ms - claim.ended_at) / 1000
        if left > 0:
            return Wait(left)
    # If it kills the function in its last delivery, nobody is left to say why it is dead: it goes on as a fresh copy.
    return Wait(1) if receives >= RENEWED_FROM else Run()


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
            if record is None or not self._is_settled_before(record):
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

    def _is_settled_before(self, record: Taken) -> bool:
        """Return whether giving up has settled the matter, so that there is nothing to try.

        Raises
        ------
        GaveUp
            If the attempts are used up and it did not.
        EndedSilently
            If its moment has not come.
        """
        self.number = record.attempts
        match self._decision(record):
            case Run():
                record.ended_at = None
                return False
            case Wait(seconds):
                self.number = record.attempts = record.attempts - 1
                raise EndedSilently("the function died in the attempt before", seconds)
            case GiveUp(failure, settles):
                self.number = record.attempts = record.attempts - 1
                if settles and self._is_settled(failure):
                    return True
                raise GaveUp(failure)

    def _decision(self, record: Taken) -> Run | GiveUp | Wait:
        runtime = self._runtime
        return decide(
            record,
            in_time=self._in_time,
            receives=self._receives,
            now_ms=epoch_milliseconds(runtime.clock.now()),
            backoff=runtime.timings.consumer_backoff,
            random=runtime.random,
        )

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
