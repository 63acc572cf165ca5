"""Every duration in one place, and the contract between them, checked at synth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from mailroom.retry import Backoff

MINUTE, HOUR, DAY = 60, 3_600, 86_400

MAX_API_TIMEOUT = 29
"""Seconds an HTTP API waits for its integration, less a second to answer in.
https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-quotas.html"""
MAX_VISIBILITY = 43_200
"""Seconds a message may stay hidden, counted from its first receive.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html"""
SAGA_PATIENCE = 12 * HOUR
"""How long a step of a saga waits for what sagas depend on: a saga that stands for longer is asked to go on."""
MAX_QUEUE_RETENTION = 14 * DAY
MAX_DELAY = 15 * MINUTE
"""How long a message may be delayed when it is sent.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"""
MIN_POLL_WAIT, MAX_POLL_WAIT = 1, 20
"""How long a receive from SQS may wait; at 0 it would ask without a pause.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""
EXPIRY_NOTICE = 2 * DAY
"""How long before SQS deletes a dead letter for good its alarm sounds."""
SHORTEST_SESSION = 15 * MINUTE
"""A role's credentials last no shorter when they are new. A link that they sign ends with them at the latest, and how
much is left of them is known to nobody here: no check makes a link last.
https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-presigned-url.html"""
SCHEDULE_FLOOR = MINUTE
"""EventBridge fires no schedule more often.
https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-rate-expressions.html"""
MIN_RECORD_AGE = 60
"""Lambda takes no shorter age for the records of a stream.
https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html"""
MIN_EVENT_AGE, MAX_EVENT_AGE = 60, 6 * HOUR
"""How long Lambda keeps an event that it could not start a function for.
https://docs.aws.amazon.com/lambda/latest/api/API_PutFunctionEventInvokeConfig.html"""
VISIBILITY_TIMEOUTS = 6
"""A queue's visibility in timeouts of its function.
https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"""


class TimingError(ValueError):
    """Durations that contradict each other; the message names each broken line."""


@dataclass(frozen=True, slots=True)
class Timings:
    """How long things take, in seconds unless the name says otherwise."""

    connect_timeout: float = 1
    read_timeout: float = 3
    transfer_timeout: float = 10
    """How long S3 may take over one part of a file."""
    call_attempts: int = 3
    call_backoff: float = 3
    """What botocore's standard mode waits at most between three attempts: up to 1 s, then up to 2 s.
    https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html"""

    api_timeout: int = 10
    operations_timeout: int = MAX_API_TIMEOUT
    """A redrive of many letters takes its time, and stops before this is up."""
    sweep_period: int = MINUTE
    sweep_timeout: int = 55
    sweep_tick: float = 5
    export_timeout: int = 50
    wake_up_timeout: int = MINUTE
    wake_up_window: int = 1
    """How long new mail gathers before it wakes the relay."""
    wake_up_retries: int = 2
    wake_up_age: int = 5 * MINUTE
    """A wake-up older than this is left to the sweep."""
    job_timeout: int = MINUTE
    job_retries: int = 2
    job_start_within: int = HOUR
    """A run that could not be started, or repeated, by then is given up."""
    consumer_timeout: int = 30
    batching_window: int = 0

    outbound_connect_timeout: float = 3
    outbound_read_timeout: float = 10
    outbound_timeout: float = 15
    """How long a whole request to somebody else's URL may take, from the look-up of its name to the answer."""
    longest_retry_after: float = HOUR
    """What a receiver may ask for at most; a message may be hidden for 12 h in all its attempts together."""

    stop_margin: float = 5
    """What an invocation keeps for finishing what it has begun."""

    poll_wait: int = 10
    """How long a worker's receive waits for messages."""
    deletion_gathering: float = 1
    """How long the deletion of a handled message waits for others to go in the same call."""
    process_grace: float = 25
    """What a process that is told to end takes for it: platforms kill it after 30 s."""

    clock_skew: float = 5
    lease: float = MINUTE
    bus_check_period: float = MINUTE

    broker_timeout: float = 10
    """How long RabbitMQ or Kafka may take over a batch, from the connection to the last confirmation; a secret that
    began to be read before it is up may take `longest_try` more."""
    broker_idle: float = 30
    """How long a connection to them is trusted that is not used: a function that stands still sends no heartbeat."""

    relay_backoff: Backoff = field(default=Backoff(base=5, cap=5 * MINUTE, attempts=5))
    pause_backoff: Backoff = field(default=Backoff(base=5, cap=MINUTE, attempts=5))
    resend_backoff: Backoff = field(default=Backoff(base=0.05, cap=0.1, attempts=4))
    """Between the calls that carry what a call before did not take: three more, within 0.4 s."""
    commit_backoff: Backoff = field(default=Backoff(base=0.05, cap=0.4, attempts=5))
    breaker_opens_after: float = MINUTE
    """How long whole batches of a consumer must find what it depends on not there, before its queue is paused."""
    breaker_probe: float = 3 * MINUTE
    """How long its queue is read again, before that counts as well: longer than switching and a first batch take."""
    breaker_backoff: Backoff = field(default=Backoff(base=2 * MINUTE, cap=30 * MINUTE, attempts=5))
    """The pauses between two probes. They end by success, or by patience, and by no count."""
    consumer_backoff: Backoff = field(default=Backoff(base=4 * MINUTE, cap=HOUR, attempts=5))
    outage_to_outlive: float = HOUR

    patience: int = 4 * DAY
    """How long a message waits at most, since its first failure, for what its consumer depends on: it uses no attempts
    then."""

    saga_stall: int = 14 * HOUR
    """A saga that has not moved for so long is asked to go on: its request was lost, for no message is tried longer."""
    saga_retention: int = 90 * DAY
    """How long the row of a finished saga is kept."""

    source_retention: int = 5 * DAY
    dead_letter_retention: int = MAX_QUEUE_RETENTION
    sent_retention: int = 7 * DAY
    discarded_retention: int = 90 * DAY
    idempotency_key_life: int = DAY
    consumer_record_life: int = (5 + 14 + 7) * DAY
    file_life: int = 7 * DAY
    """How long a file is kept that was made for a caller."""
    link_life: int = 5 * MINUTE
    """How long a link to it works at most: whoever has the link has the file."""

    signing_rotation: int = 90 * DAY
    """How old a master key gets before the next one joins it."""
    signing_overlap: int = 7 * DAY
    """How long both sign: the time that receivers have to fetch the next."""
    signing_key_cache: float = 5 * MINUTE
    """How long a process goes on with the keys that it has read."""

    def visibility(self, function_timeout: int) -> int:
        """Answer the visibility timeout of a queue whose function may run this long."""
        return VISIBILITY_TIMEOUTS * function_timeout + self.batching_window

    def longest_stay(self, function_timeout: int) -> int:
        """Answer the seconds after which a consumer has handled a message, or given it up."""
        return math.ceil(self.consumer_backoff.longest_span()) + self.visibility(function_timeout)

    def longest_wait(self, function_timeout: int) -> float:
        """Return the seconds after which a message that failed is delivered again, were nobody to answer for it."""
        return self.consumer_backoff.longest_delay() + self.visibility(function_timeout)

    def patience_of(self, declared: int | None) -> int:
        """Return the seconds for which a message of a consumer waits that declares so many: the stage's at most."""
        return self.patience if declared is None else min(declared, self.patience)

    @property
    def late_wake_up(self) -> float:
        """The seconds after which a wake-up is late; at twice as many it is dropped, and its age no longer seen."""
        return self.wake_up_age / 2

    @property
    def unroutable_after(self) -> float:
        """The seconds between two attempts for an event that a queue of RabbitMQ has to take: all span an outage."""
        return self.outage_to_outlive / (self.relay_backoff.attempts - 1)

    @property
    def longest_poll(self) -> float:
        """The seconds after which a receive has its answer, or is given up: it has no retries of its own."""
        return self.connect_timeout + self.poll_wait + self.read_timeout

    @property
    def longest_call(self) -> float:
        """The seconds that one AWS call may take, with its own retries."""
        return self.longest_try * self.call_attempts + self.call_backoff

    @property
    def longest_try(self) -> float:
        """The seconds that one attempt at an AWS call may take."""
        return self.connect_timeout + self.read_timeout

    def check(self, consumer_timeouts: Mapping[str, int] | None = None) -> Timings:
        """Answer the timings if they keep the contract.

        Parameters
        ----------
        consumer_timeouts
            What consumers declare for themselves, by name.

        Raises
        ------
        TimingError
            If any line of it is broken.
        """
        lines = chain(self._contract(), self._contract_with(consumer_timeouts or {}))
        broken = [line for line, holds in lines if not holds]
        if broken:
            raise TimingError("these timings contradict each other: " + "; ".join(broken))
        return self

    def _contract_with(self, consumer_timeouts: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
        for name, timeout in consumer_timeouts.items():
            visibility = self.visibility(timeout)
            yield f"{name}: {VISIBILITY_TIMEOUTS} x its timeout <= 43200 s", visibility <= MAX_VISIBILITY
            yield (
                f"{name}: source_retention > its whole retry span + visibility",
                self.source_retention > self.consumer_backoff.longest_span() + visibility,
            )
            yield (
                f"{name}: saga_stall > what a message may stay hidden (43200 s) + visibility",
                self.saga_stall > MAX_VISIBILITY + visibility,
            )

    def _contract(self) -> Iterator[tuple[str, bool]]:
        retry_span = self.consumer_backoff.longest_span()
        lease_floor = 2 * self.clock_skew + 3 * self.longest_call
        yield "api_timeout <= 29 s", self.api_timeout <= MAX_API_TIMEOUT
        yield "operations_timeout <= 29 s", self.operations_timeout <= MAX_API_TIMEOUT
        yield "sweep_timeout < sweep_period", self.sweep_timeout < self.sweep_period
        yield "export_timeout < EventBridge's floor of a minute", self.export_timeout < SCHEDULE_FLOOR
        yield "wake_up_age >= 60 s", self.wake_up_age >= MIN_RECORD_AGE
        yield (
            "60 s <= job_start_within <= 6 h",
            MIN_EVENT_AGE <= self.job_start_within <= MAX_EVENT_AGE,
        )
        yield "sweep_period >= EventBridge's floor of a minute", self.sweep_period >= SCHEDULE_FLOOR
        yield (
            f"lease ({self.lease:g} s) >= 2 x clock_skew + 3 x the longest call ({lease_floor:g} s)",
            self.lease >= lease_floor,
        )
        yield (
            "broker_timeout + one try at reading its secret <= the longest call, for which the lease has room",
            self.broker_timeout + self.longest_try <= self.longest_call,
        )
        yield (
            "the consumer's whole retry span <= what a message may stay hidden (43200 s)",
            retry_span <= MAX_VISIBILITY,
        )
        yield (
            "source_retention > the consumer's whole retry span + visibility",
            self.source_retention > retry_span + self.visibility(self.consumer_timeout),
        )
        yield (
            "source_retention > patience + the longest wait between two attempts + visibility",
            self.source_retention > self.longest_wait(self.consumer_timeout) + self.patience,
        )
        yield "dead_letter_retention > source_retention", self.dead_letter_retention > self.source_retention
        yield (
            "dead_letter_retention > source_retention + 2 d, or the alarm on expiring dead letters would always sound",
            self.dead_letter_retention > self.source_retention + EXPIRY_NOTICE,
        )
        yield "dead_letter_retention <= 14 d", self.dead_letter_retention <= MAX_QUEUE_RETENTION
        yield (
            "consumer_record_life >= source_retention + dead_letter_retention + 7 d",
            self.consumer_record_life >= self.source_retention + self.dead_letter_retention + 7 * DAY,
        )
        yield (
            "signing_overlap >= source_retention, the longest that a webhook is tried",
            self.signing_overlap >= self.source_retention,
        )
        yield "signing_key_cache < signing_overlap", self.signing_key_cache < self.signing_overlap
        yield "signing_overlap < signing_rotation", self.signing_overlap < self.signing_rotation
        yield (
            "outbound_connect_timeout and outbound_read_timeout < outbound_timeout",
            max(self.outbound_connect_timeout, self.outbound_read_timeout) < self.outbound_timeout,
        )
        yield (
            "outbound_timeout + stop_margin < consumer_timeout",
            self.outbound_timeout + self.stop_margin < self.consumer_timeout,
        )
        yield (
            "longest_retry_after x the consumer's repetitions <= what a message may stay hidden (43200 s)",
            self.longest_retry_after * (self.consumer_backoff.attempts - 1) <= MAX_VISIBILITY,
        )
        yield (
            "saga_stall > what a message may stay hidden (43200 s) + visibility",
            self.saga_stall > MAX_VISIBILITY + self.visibility(self.consumer_timeout),
        )
        yield (
            "saga_stall > a step's patience (43200 s) + the longest wait between two attempts + visibility",
            self.saga_stall > self.longest_wait(self.consumer_timeout) + SAGA_PATIENCE,
        )
        yield (
            "saga_retention >= consumer_record_life",  # so that a late request finds the saga finished
            self.saga_retention >= self.consumer_record_life,
        )
        yield "24 h <= idempotency_key_life <= 7 d", DAY <= self.idempotency_key_life <= 7 * DAY
        yield "sent_retention >= 1 h", self.sent_retention >= HOUR
        yield (
            "file_life is whole days, as S3 counts",
            self.file_life >= DAY and self.file_life % DAY == 0,
        )
        yield "link_life <= 15 min, what a role's new credentials last", 0 < self.link_life <= SHORTEST_SESSION
        yield "1 s <= poll_wait <= 20 s", MIN_POLL_WAIT <= self.poll_wait <= MAX_POLL_WAIT
        yield (
            f"process_grace ({self.process_grace:g} s) > the longest poll ({self.longest_poll:g} s)",
            self.process_grace > self.longest_poll,
        )
        yield (
            "the consumer's back-offs sum to at least outage_to_outlive",
            self.consumer_backoff.shortest_span() >= self.outage_to_outlive,
        )


_LOCAL = Timings(
    consumer_timeout=10,
    outbound_connect_timeout=1,
    outbound_read_timeout=3,
    outbound_timeout=4,
    longest_retry_after=10,
    signing_key_cache=2,
    relay_backoff=Backoff(base=1, cap=10, attempts=5),
    pause_backoff=Backoff(base=1, cap=5, attempts=5),
    consumer_backoff=Backoff(base=1, cap=10, attempts=5),
    patience=10 * MINUTE,
    outage_to_outlive=15,
    bus_check_period=2,
    broker_timeout=3,
    poll_wait=2,
)


def timings_of(stage: str) -> Timings:
    """Answer the timings of a stage: impatient on a laptop, the defaults everywhere else."""
    return _LOCAL if stage == "local" else Timings()
