"""One run of transfers: callers, consumers, operators and the orchestrator at once, by chance, and then the recovery.

The books are balanced after every write: an owner's count is the repositories that are its own and the places that
transfers hold for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from app.api import api
from app.owners import PutOwner, set_owner
from app.repos import CreateRepo, RenameRepo, Repo, TransferRepo, create_repo, delete_repo, rename_repo
from app.sagas.transfer import TransferData, transfer, transfer_repo
from mailroom.clock import timestamp
from mailroom.consumer_edge import ConsumerEdge
from mailroom.dead_letters.letter import Deed
from mailroom.failures import Permanent
from mailroom.jobs.saga_orchestrator import resume
from mailroom.outbox.event import Envelope
from mailroom.runtime import Runtime
from mailroom.saga import STARTING, Saga, Step, StepCall
from mailroom.saga_consumer import saga_consumer
from mailroom.saga_retry import NotRetried, retry
from mailroom.saga_row import Direction, Outcome, SagaRow, Status
from mailroom.sources.memory import InMemorySource
from mailroom.testing import LambdaContext
from mailroom.unit_of_work import UnitOfWork
from tests import stage

from ..property.interleaving import Actor, ProcessClock, Stage
from ..property.tables import Item, Tables, error

SETTINGS, APP_SETTINGS = stage.settings(), stage.app_settings()
KEYS = {
    "outbox-table": ("partition", "event_id"),
    "idempotency-table": ("id",),
    "sagas-table": ("id",),
    "repos-table": ("id",),
    "owners-table": ("id",),
    "breakers-table": ("consumer",),
}
OWNERS = ("a", "b", "c")
FAILING = ("reserve", "give_place_back", "move", "move_back", "release", "release")
"""Which steps may fail in a run; the last one most often, for only then does everything have to be undone."""
A_LONG_WHILE = SETTINGS.timings.saga_stall + 60


class Unbalanced(AssertionError):
    """The books do not balance."""


class Play(Stage):
    """A run by its seed."""

    def __init__(self, seed: int, *, steps: int = 130) -> None:
        super().__init__(seed)
        self.steps_left = steps
        self.calm = False
        self.crash_rate = self.random.choice([0.0, 0.01, 0.03])
        self.fault_rate = self.random.choice([0.0, 0.02, 0.06])
        self.failure_rate = self.random.choice([0.0, 0.3, 0.9])
        self.failing = set(self.random.sample(FAILING, self.random.randint(0, 2)))
        self.trace: list[str] = []
        self.unbalanced: str | None = None
        self.tables = Tables(KEYS)
        self.queue = InMemorySource(ProcessClock(self, 0))
        self.carried: set[str] = set()
        self.definition = self._failing(transfer)

    # What the processes of a run call

    def aws(self, operation: str, asked: Any) -> Item:
        """Answer a call of the process that is on; it may fail, before or after it took effect."""
        if self.current is None:
            return self.tables.perform(operation, asked)
        self.gate()
        if self._happens(self.fault_rate):
            raise error(self.random.choice(["ThrottlingException", "InternalServerError"]))
        try:
            answer = self.tables.perform(operation, asked)
        except ClientError as refused:
            self._note(operation, refused.response["Error"]["Code"])
            raise
        self._note(operation, "")
        self._balance(operation)
        self.gate()
        if self._happens(self.fault_rate):
            raise ReadTimeoutError(endpoint_url="https://aws.example")
        return answer

    def _balance(self, operation: str) -> None:
        if operation in ("TransactWriteItems", "UpdateItem") and (wrong := self.wrong_counts()):
            self.unbalanced = self.unbalanced or f"{wrong}"
            raise Unbalanced(self.unbalanced)

    def _happens(self, rate: float) -> bool:
        return not self.calm and rate > 0 and self.random.random() < rate

    def _note(self, operation: str, what: str) -> None:
        if self.current is not None:
            self.trace.append(f"{self.time:9.1f} {self.current.name}: {operation} {what}")

    def _failing(self, definition: Saga[TransferData]) -> Saga[TransferData]:
        """Answer the same saga, whose steps fail by chance: before their effect, or after what is outside it."""

        def may_fail(act: Callable[[TransferData, StepCall], TransferData | None]) -> Any:
            @wraps(act)
            def acting(data: TransferData, call: StepCall) -> TransferData | None:
                changed = act(data, call)
                if act.__name__ in self.failing and self._happens(self.failure_rate):
                    raise self.random.choice([Permanent("never"), ValueError("not now"), TimeoutError("no answer")])
                return changed

            return acting

        steps = tuple(
            Step(may_fail(step.action), may_fail(step.compensation) if step.compensation else None)
            for step in definition.steps
        )
        return Saga(definition.name, definition.data, steps, definition.access)

    # Who plays

    def run(self) -> None:
        """Play, then let everything recover, and see how it ended."""
        self.finish(self.start("set up", self._set_up))
        while self.steps_left and self.unbalanced is None:
            self.steps_left -= 1
            self._go_on()
        self.calm, self.crash_rate = True, 0.0
        self._recover()
        if self.unbalanced is not None:
            raise Unbalanced(self.unbalanced)
        self._judge()

    def _go_on(self) -> None:
        choice = self.random.random()
        if choice < 0.4 and len(self.actors) < 5:
            self._enter()
        elif choice < 0.9 and self.actors:
            actor = self.random.choice(self.actors)
            if self.random.random() < 0.03:
                actor.freeze(self.time + self.random.uniform(5, 120), stands_still=False)
            elif actor.wakes_at <= self.time:
                self.step(actor, self.random.randint(1, 8))
        elif self.random.random() < 0.03:
            self.time += A_LONG_WHILE
        else:
            self.time += self.random.choice([0.1, 1, 200, 300, 3_000])

    def _enter(self) -> None:
        kind: Callable[[Actor], object] = self.random.choice(
            [self._call] * 3
            + [self._consume] * 5
            + [self._carry] * 3
            + [self._orchestrate, self._redrive, self._retry, self._lose]
        )
        self.start(f"{kind.__name__[1:]}-{len(self.trace)}", kind, skew=self.random.uniform(-5, 5))

    def _runtime(self, actor: Actor) -> Runtime:
        return Runtime(SETTINGS, APP_SETTINGS, clock=actor.clock, random=actor.random)

    def _set_up(self, actor: Actor) -> None:
        for owner_id in OWNERS:
            work = UnitOfWork(self._runtime(actor), api.access)
            set_owner(owner_id, PutOwner(email=None, repo_quota=self.random.choice([1, 2, 5])), work)
            work.commit()
            work = UnitOfWork(self._runtime(actor), api.access)
            create_repo(CreateRepo(name="tool", owner_id=owner_id), work)
            work.commit()

    def _call(self, actor: Actor) -> None:
        """Ask for something, as a caller of the API does."""
        work = UnitOfWork(self._runtime(actor), api.access)
        repos = [item["id"]["S"] for item in self.tables.rows["repos-table"].values()]
        repo = work.get(Repo, self.random.choice(repos)) if repos else None
        choice = self.random.random()
        if repo is None or choice < 0.2:
            create_repo(CreateRepo(name="tool", owner_id=self.random.choice(OWNERS)), work)
        elif choice < 0.35:
            delete_repo(repo, work)
        elif choice < 0.5:
            rename_repo(repo, RenameRepo(name=f"tool-{self.random.random()}"), work)
        else:
            others = [owner_id for owner_id in OWNERS if owner_id != repo.owner_id]
            transfer_repo(repo, TransferRepo(new_owner_id=self.random.choice(others)), work)
        work.commit()

    def _consume(self, actor: Actor) -> None:
        """Take what the queue has, as one invocation does."""
        records = self.queue.receive(self.random.choice([1, 3, 10]), wait=0, hidden=180)
        if not records:
            return
        edge = ConsumerEdge(saga_consumer(__name__, [self.definition]), self._runtime(actor), self.queue)
        answer = edge.handle({"Records": records}, LambdaContext())
        failed = {each["itemIdentifier"] for each in answer["batchItemFailures"]}
        self.queue.delete([each["receiptHandle"] for each in records if each["messageId"] not in failed])

    def _carry(self, actor: Actor) -> None:
        """Bring requests to the queue: new ones or old ones, in any order, some of them twice."""
        rows = self._requests()
        for row in self.random.sample(rows, len(rows)):
            if self.random.random() < (0.05 if row["event_id"]["S"] in self.carried else 0.8):
                self.carried.add(row["event_id"]["S"])
                self.queue.send(_body(row))

    def _orchestrate(self, actor: Actor) -> None:
        """Ask stalled sagas to go on."""
        runtime = self._runtime(actor)
        since = timestamp(runtime.clock.now() - timedelta(seconds=SETTINGS.timings.saga_stall))
        for (saga_id,) in list(self.tables.rows["sagas-table"]):
            resume(saga_id, since, UnitOfWork(runtime, STARTING))

    def _redrive(self, actor: Actor) -> None:
        """Send again what is dead."""
        dead = list(self.queue.dead)
        self.queue._dead.clear()
        self.queue.send(*dead)

    def _retry(self, actor: Actor) -> None:
        """Ask for a saga's step again, as an operator does who sees that it stands still, or believes so."""
        runtime = self._runtime(actor)
        deed = Deed(by=actor.name, at=timestamp(runtime.clock.now()), why="it is mended")
        if ids := [saga_id for (saga_id,) in self.tables.rows["sagas-table"]]:
            with suppress(NotRetried):
                retry(self.random.choice(ids), deed, runtime)

    def _lose(self, _: Actor) -> None:
        """Purge the dead-letter queue."""
        self.queue._dead.clear()

    # How it ends

    def _recover(self) -> None:
        for actor in list(self.actors):
            self.finish(actor)
        for _ in range(60):
            for row in self._requests():
                if row["event_id"]["S"] not in self.carried:
                    self.carried.add(row["event_id"]["S"])
                    self.queue.send(_body(row))
            for kind in (self._redrive, *([self._retry] * 3 if self.stuck() else []), self._consume):
                self.finish(self.start("recovery", kind))
            self.time += 4_000
            if not self.unfinished() or self.unbalanced is not None:
                return

    def _judge(self) -> None:
        if left := self.unfinished():
            raise Unbalanced(f"sagas that never ended: {left}")
        for row in self._sagas():
            effects = Counter((each.step, each.direction) for each in row.transitions if each.outcome is Outcome.DONE)
            if any(count > 1 for count in effects.values()):
                raise Unbalanced(f"{row.id} did something twice: {effects}")
        if wrong := self.wrong_counts():
            raise Unbalanced(f"at the end: {wrong}")

    def unfinished(self) -> list[str]:
        """Answer the sagas that have not come to an end."""
        ends = (Status.COMPLETED, Status.COMPENSATED)
        return [f"{row.id} {row.status}" for row in self._sagas() if row.status not in ends]

    def stuck(self) -> bool:
        """Answer whether a saga waits for an operator."""
        return any(row.status == Status.STUCK for row in self._sagas())

    def wrong_counts(self) -> dict[str, str]:
        """Answer the owners whose count is not what they have and what is held for them."""
        wanted = Counter(item["owner_id"]["S"] for item in self.tables.rows["repos-table"].values())
        for row in self._sagas():
            wanted.update(_held(row))
        owners = {key[0]: item for key, item in self.tables.rows["owners-table"].items()}
        counted = {owner_id: int(item.get("repo_count", {"N": "0"})["N"]) for owner_id, item in owners.items()}
        return {
            owner_id: f"counted {counted.get(owner_id, 0)}, has {wanted[owner_id]}"
            for owner_id in sorted({*counted, *wanted})
            if counted.get(owner_id, 0) != wanted[owner_id]
        }

    def _requests(self) -> list[Item]:
        rows = self.tables.rows["outbox-table"].values()
        return [row for row in rows if row["type"]["S"] == "saga.step_requested"]

    def _sagas(self) -> list[SagaRow]:
        return [SagaRow.from_raw_data(item) for item in self.tables.rows["sagas-table"].values()]


def _held(row: SagaRow) -> list[str]:
    """Answer the owners for whom a transfer holds a place that no repository stands for."""
    data = TransferData.model_validate_json(row.data)
    done = {(each.step, each.direction) for each in row.transitions if each.outcome is Outcome.DONE}

    def stands(step: str) -> bool:
        return (step, Direction.ACTION) in done and (step, Direction.COMPENSATION) not in done

    held = []
    if stands("reserve") and not stands("move") and not data.place_gone:
        held.append(data.owner_id)
    if stands("move") and not stands("release"):
        held.append(data.former_owner_id)
    return held


def _body(row: Item) -> str:
    return Envelope(
        id=row["event_id"]["S"],
        type=row["type"]["S"],
        source=row["source"]["S"],
        subject=row["subject"]["S"],
        time=row["created_at"]["S"],
        payload=row["payload"]["S"],
    ).to_json()
