"""One run's world: an empty account, a clock, and the process that works in it until it dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from random import Random
from typing import Any, Self

from app.api import api
from app.events import RepoCreated
from app.owners import Owner
from mailroom.consumer import Consumer, consumer
from mailroom.consumer_edge import ConsumerEdge
from mailroom.dead_letters.desk import Desk
from mailroom.dead_letters.letter import Deed
from mailroom.deployment import Deployment
from mailroom.failures import Permanent, Unavailable
from mailroom.http.testing import ApiClient
from mailroom.job import Job, JobEdge
from mailroom.needs import Port
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import relay_handler
from mailroom.outbox.table import PENDING_PREFIX
from mailroom.publishers.publisher import SENT, Destination, Outcome, Publisher
from mailroom.runtime import Runtime
from mailroom.sources.deletions import Deletions
from mailroom.sources.source import Record
from mailroom.sources.sqs import SqsSource
from mailroom.testing import FakePublisher, LambdaContext, ManualClock
from mailroom.unit_of_work import UnitOfWork
from mailroom.worker import Worker

from .aws import APP_SETTINGS, QUEUE, SETTINGS, Aws
from .journal import Journal

DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="it is mended")
EFFECT = "effect-of-"


class Receiver:
    """What the counting consumer depends on: broken until someone mends it."""

    broken = False
    down = False
    """Not there, and may come back by itself."""


@consumer(on=RepoCreated, writes=[Owner])
def counting(event: RepoCreated, work: UnitOfWork) -> None:
    """Count the effects of each event in a row."""
    if Receiver.broken:
        raise Permanent("the receiver is gone")
    if Receiver.down:
        raise Unavailable("the receiver is not there")
    work.update(Owner(f"{EFFECT}{work.cause_id}"), [Owner.repo_count.add(1)])


class UntilEmpty(SqsSource):
    """The consumer's queue, whose worker stops when there is nothing to receive, or nothing to be had this time.

    It never waits: moto does so by the clock, which stands still in a call.
    """

    on_empty: Callable[[], None]

    def receive(self, limit: int, *, wait: int, hidden: int) -> list[Record]:
        """Answer what is there."""
        records: list[Record] = []
        try:
            records = super().receive(limit, wait=0, hidden=hidden)
        finally:
            if not records:
                self.on_empty()
        return records


class DeletionsInTurn(Deletions):
    """Deletes in the worker's own thread, so that each run makes the same calls in the same order."""

    def __enter__(self) -> Self:
        self._handled = []
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    def flush(self) -> None:
        """Delete what there is."""
        due, self._handled = self._handled, []
        if due:
            self.delete(due)


class Process:
    """What one process has in its memory: its death takes all of it along."""

    def __init__(self, world: World) -> None:
        ports: dict[type[Port], Port] = {Deployment: world.deployment}
        if world.destination is not None:
            ports[Destination] = Destination(world.destination)
        self._seed = world.random.getrandbits(64)
        self.runtime = Runtime(
            world.settings,
            APP_SETTINGS,
            clock=world.clock,
            random=Random(self._seed),  # noqa: S311 - repeatable on purpose
            ports=ports,
        )
        self._world = world
        self._edges: dict[str, ConsumerEdge] = {}

    @cached_property
    def api(self) -> ApiClient:
        """The API, as callers see it."""
        return ApiClient(api, self.runtime)

    @cached_property
    def desk(self) -> Desk:
        """The operator's view."""
        return Desk(self.runtime, self._world.deployment)

    @cached_property
    def _relay(self) -> Any:
        return relay_handler(lambda: self.runtime)

    def _edge(self, consumer: Consumer) -> ConsumerEdge:
        if consumer.name not in self._edges:
            source = SqsSource(self._world.aws.queues[QUEUE])
            self._edges[consumer.name] = ConsumerEdge(consumer, self.runtime, source)
        return self._edges[consumer.name]

    def wake_relay(self) -> None:
        """Wake the relay for every shard that has mail, as the table's stream does."""
        partitions = sorted({row["partition"] for row in self._world.outbox if _is_pending(row)})
        records = [{"dynamodb": {"Keys": {"partition": {"S": partition}}}} for partition in partitions]
        self._relay({"Records": records}, LambdaContext())

    def deliver(self, to: Consumer = counting) -> None:
        """Hand a consumer what the queue has and delete what it handled, as Lambda does."""
        records = self._world.aws.receive()
        if not records:
            return
        answer = self._edge(to).handle({"Records": records}, LambdaContext())
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        for record in records:
            if record["messageId"] not in failed:
                self._world.aws.delete(record["receiptHandle"])

    def work(self) -> None:
        """Run a worker on the consumer's queue until that has nothing to receive."""
        source = UntilEmpty(self._world.aws.queues[QUEUE])
        handler = ConsumerEdge(counting, self.runtime, source).handle
        deletions = DeletionsInTurn(source, consumer=counting.name, within=0)
        worker = Worker(source, handler, self.runtime, name=counting.name, deletions=deletions)
        source.on_empty = worker.stop
        worker.run()

    def run(self, job: Job) -> None:
        """Run a job, as its schedule does."""
        JobEdge(job, self.runtime).run(LambdaContext())


class World:
    """An account, a clock, and whoever works there."""

    def __init__(self, aws: Aws, seed: int) -> None:
        self.aws, self.clock = aws, ManualClock()
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.deployment = Deployment(stage="test", queues=aws.queues)
        self.destination: Publisher | None = None
        self.settings = SETTINGS
        self.final_refusals: set[str] = set()
        """The codes with which a destination refuses an entry of this run for good."""
        self.journal = Journal(on_bus=aws.send)
        Receiver.broken = Receiver.down = False
        aws.empty(self.clock)
        self.restart()

    def restart(self) -> None:
        """Go on with a new process."""
        self.process = Process(self)

    def deliver_to(self, url: str) -> None:
        """Relay to the destination of this URL."""
        self.settings = SETTINGS.model_copy(update={"publisher_url": url})
        self.restart()

    def publish_to(self, *outcomes: Outcome) -> None:
        """Relay to a destination in memory, which answers so at first and then takes what comes."""
        script = list(outcomes)

        def answer(event: Envelope) -> Outcome:
            outcome = script.pop(0) if script else SENT
            if outcome is SENT:
                self.journal.publish(event.id)
            return outcome

        self.deliver_by(FakePublisher(answer))

    def deliver_by(self, publisher: Publisher) -> None:
        """Relay by this publisher, whatever process is at work."""
        self.destination = publisher
        self.restart()

    # What there is to see

    @property
    def outbox(self) -> list[dict[str, Any]]:
        """Every row of the outbox."""
        return self.aws.items("outbox")

    @property
    def pending(self) -> list[dict[str, Any]]:
        """The rows of events that wait."""
        return [row for row in self.outbox if _is_pending(row)]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Every idempotency record."""
        return self.aws.items("idempotency")

    @property
    def effects(self) -> Counter[str]:
        """How often each event had its effect."""
        rows = (row for row in self.aws.items("owners") if row["id"].startswith(EFFECT))
        return Counter({row["id"].removeprefix(EFFECT): int(row["repo_count"]) for row in rows})

    @property
    def messages(self) -> int:
        """How many messages the consumer's queue and its dead-letter queue have."""
        return sum(self.aws.depth(queue) for queue in self.aws.queues)


def _is_pending(row: dict[str, Any]) -> bool:
    partition: str = row["partition"]
    return partition.startswith(PENDING_PREFIX)
