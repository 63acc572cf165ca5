"""Transfers of a repository: one that completes, one that has to be undone, and one that is stuck and retried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

from app.consumers.sagas import sagas
from app.events import RepoTransferred
from app.owners import Owner
from app.sagas.transfer import transfer
from mailroom import clients
from mailroom.consumer_edge import ConsumerEdge
from mailroom.idempotency import COMPLETED, IdempotencyRow
from mailroom.outbox.event import Envelope
from mailroom.saga import SagaStepRequested
from mailroom.saga_retry import NotRetried, retry
from mailroom.saga_row import Outcome, SagaRow, Status
from mailroom.sources.sqs import SqsSource
from mailroom.testing import LambdaContext

from .aws import QUEUE
from .harness import Scenario
from .ledger import Finding, Flaw, once, records_completed
from .world import DEED, Process, World

BEFORE, AFTER = "owner-before", "owner-after"


class _Transfer(Scenario):
    """A repository is to go from one owner to another; each request reaches the queue as often as `copies` says."""

    status: ClassVar[Status]
    outcomes: ClassVar[tuple[Outcome, ...]]
    copies: ClassVar[int] = 2
    counts: ClassVar[dict[str, int]]
    """How many repositories each owner has at the end."""

    def __init__(self) -> None:
        self._edge: tuple[Process, ConsumerEdge] | None = None
        self._carried: set[str] = set()
        self._begun = False

    def prepare(self, world: World) -> None:
        order = {"name": "a repository", "owner_id": BEFORE}
        self._path = world.process.api.post("/api/v1/repos", order, key="key-1").headers["Location"]

    def begin(self, world: World) -> None:
        """Ask for the transfer, until there is an answer."""
        if not self._begun:
            body = {"new_owner_id": AFTER}
            self._begun = world.process.api.post(f"{self._path}/transfer", body, key="key-2").status == 202

    def step(self, world: World) -> bool:
        self.begin(world)
        self._carry(world)
        self._deliver(world)
        return self._begun and not self._waiting(world) and not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from records_completed(world)
        yield from once("sagas", len(world.aws.items("sagas")))
        for saga in world.aws.items("sagas"):
            yield from self._is_at_its_end(SagaRow(**_attributes(saga)))
        for owner_id, wanted in self.counts.items():
            count = sum(int(row["repo_count"]) for row in world.aws.items("owners") if row["id"] == owner_id)
            if count != wanted:
                flaw = Flaw.LOST if count < wanted else Flaw.DUPLICATED
                yield Finding(flaw, f"{owner_id} is counted {count} repositories, and should be {wanted}")

    def _is_at_its_end(self, row: SagaRow) -> Iterator[Finding]:
        if row.status != self.status:
            yield Finding(Flaw.STUCK, f"the saga is {row.status}, and should be {self.status}")
        found = tuple(each.outcome for each in row.transitions)
        if found != self.outcomes:
            yield Finding(Flaw.DUPLICATED, f"its history is {found}, and should be {self.outcomes}")

    def _carry(self, world: World) -> None:
        """Put each new request into the queue, by default twice: what relay and bus do is other scenarios' matter."""
        for row in self._waiting(world):
            self._carried.add(row["event_id"])
            for _ in range(self.copies):
                world.aws.send(_envelope(row).to_json())

    def _waiting(self, world: World) -> list[dict[str, Any]]:
        return [row for row in _events(world, SagaStepRequested.type) if row["event_id"] not in self._carried]

    def _deliver(self, world: World) -> None:
        if self._edge is None or self._edge[0] is not world.process:
            source = SqsSource(world.aws.queues[QUEUE])
            self._edge = world.process, ConsumerEdge(sagas, world.process.runtime, source)
        if records := world.aws.receive():
            answer = self._edge[1].handle({"Records": records}, LambdaContext())
            failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
            for record in records:
                if record["messageId"] not in failed:
                    world.aws.delete(record["receiptHandle"])


class TransferCompletes(_Transfer):
    """All goes well."""

    status = Status.COMPLETED
    outcomes = (Outcome.DONE,) * 3
    counts: ClassVar[dict[str, int]] = {BEFORE: 0, AFTER: 1}

    def judge(self, world: World) -> Iterator[Finding]:
        yield from super().judge(world)
        yield from once("requests", len(_events(world, SagaStepRequested.type)) - len(transfer.steps) + 1)
        yield from once("transfers told", len(_events(world, RepoTransferred.type)))
        if [row["owner_id"] for row in world.aws.items("repos")] != [AFTER]:
            yield Finding(Flaw.LOST, "the repository did not arrive")


class TransferIsUndone(_Transfer):
    """The repository is deleted before it moves, so that the reserved place is given back."""

    status = Status.COMPENSATED
    outcomes = (Outcome.DONE, Outcome.FAILED, Outcome.DONE)
    counts: ClassVar[dict[str, int]] = {BEFORE: 0, AFTER: 0}

    def prepare(self, world: World) -> None:
        super().prepare(world)
        self.begin(world)
        self.step(world)  # a place is reserved
        world.process.api.delete(self._path)


class StuckTransferIsRetried(_Transfer):
    """The place cannot be given back while the count is no number; when that is mended, the letter is long gone."""

    status = Status.COMPENSATED
    copies = 1  # few calls: what a second copy does the others show
    outcomes = (Outcome.DONE, Outcome.FAILED, Outcome.STUCK, Outcome.RETRIED, Outcome.DONE)
    counts: ClassVar[dict[str, int]] = {BEFORE: 0, AFTER: 0}

    def __init__(self) -> None:
        super().__init__()
        self._retried = False

    def prepare(self, world: World) -> None:
        super().prepare(world)
        self.begin(world)
        super().step(world)  # a place is reserved
        world.process.api.delete(self._path)
        _set_count("S", "one")
        for _ in range(2):  # it turns back, and is stuck
            super().step(world)
        _set_count("N", "1")
        for letter in world.aws.receive():
            world.aws.delete(letter["receiptHandle"])
        for record in IdempotencyRow.scan(IdempotencyRow.status != COMPLETED, consistent_read=True):
            record.delete()

    def step(self, world: World) -> bool:
        if not self._retried:
            (saga,) = world.aws.items("sagas")
            with suppress(NotRetried):
                retry(saga["id"], DEED, world.process.runtime)
            self._retried = True
        return super().step(world)


def _set_count(kind: str, value: str) -> None:
    clients.dynamodb().update_item(
        TableName=Owner.table_name(),
        Key={"id": {"S": AFTER}},
        UpdateExpression="SET repo_count = :count",
        ExpressionAttributeValues={":count": {kind: value}},
    )


def _events(world: World, kind: str) -> list[dict[str, Any]]:
    return [row for row in world.outbox if row["type"] == kind]


def _envelope(row: dict[str, Any]) -> Envelope:
    return Envelope(
        id=row["event_id"],
        type=row["type"],
        source=row["source"],
        subject=row["subject"],
        time=row["created_at"],
        payload=row["payload"],
        after=row.get("after"),
    )


def _attributes(item: dict[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("id", "saga", "status", "steps", "history")}
