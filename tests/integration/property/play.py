"""One run: commands, relays, operators and jobs of the real code, interleaved by chance, and then left to recover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import botocore.client
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from app.events import RepoCreated
from app.owners import Owner
from app.repos import Repo
from mailroom import telemetry
from mailroom.dead_letters.letter import Deed, Fate
from mailroom.dead_letters.outbox import OutboxLetters
from mailroom.failures import Failure, FailureKind
from mailroom.idempotency import Idempotency, StillRunning, Superseded
from mailroom.job import JobContext, JobEdge, job
from mailroom.jobs.cleanup import cleanup
from mailroom.lease import HeldLease, LeaseLost
from mailroom.needs import Access
from mailroom.outbox import event as event_module
from mailroom.outbox import relay as relay_module
from mailroom.outbox import sweep as sweep_module
from mailroom.outbox import table as table_module
from mailroom.outbox import turn as turn_module
from mailroom.outbox import walk as walk_module
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.outbox.sweep import sweep
from mailroom.outbox.table import DEAD, PENDING_PREFIX, OutboxTable
from mailroom.publishers.publisher import SENT, Limits, Outcome, Sent
from mailroom.row import bind
from mailroom.runtime import Runtime
from mailroom.schedule import Every
from mailroom.testing import LambdaContext, not_taken, permanent, transient, unavailable
from mailroom.unit_of_work import RowChanged, UnitOfWork
from tests import stage

from .interleaving import Actor, Stage
from .tables import Item, Tables, canceled, error
from .watch import Violation, Watch, name_of

PAGE, WRITES, ENTRIES = 4, 3, 2
SKEW = 5.0
HOUR, DAY = 3_600, 86_400
WINDOW_MS = 10_000
KEY_LIFE = DAY
KINDS = ("good",) * 12 + ("flaky",) * 3 + ("doomed", "refused", "refused", "killer", "barred", "jammed")
"""How events behave: go well, sometimes not, never, are refused for good, take the relay along, are refused by policy,
or are never taken in calls that take others."""
TIMES = [0.5, 3, 12, 31, 47, 52, 56, 62, 400, 2 * HOUR, 25 * HOUR]
TIME_WEIGHTS = [15, 15, 12, 10, 5, 6, 6, 16, 10, 2, 0.3]
ROUNDS = 150

SETTINGS = stage.settings()
APP_SETTINGS = stage.app_settings()
KEYS = {
    "outbox-table": ("partition", "event_id"),
    "idempotency-table": ("id",),
    "leases-table": ("name",),
    "repos-table": ("id",),
    "owners-table": ("id",),
    "sagas-table": ("id",),
}
COMMAND = Access(writes=(Repo,), publishes=(RepoCreated,))
DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="the receiver is back")

EXPECTED = (LeaseLost, RowChanged, StillRunning, Superseded)
"""What a process may end with although no call of its own failed: another was faster."""


@job(schedule=Every(hours=1), writes=[Owner])
def fenced(work: JobContext) -> None:
    """Write under the job's lease."""
    for _ in range(3):
        work.get(Owner, "fenced")
    work.update(Owner("fenced"), [Owner.repo_count.add(1)])


@dataclass
class Command:
    """What a client asks for, perhaps several times under one key."""

    key: str
    repo: str
    kinds: tuple[str, ...]
    keyed: bool
    since: float


@dataclass
class Weather:
    """How rough a run is: chances per gate, per AWS call and per delivery."""

    crashes: float
    faults: float
    freezes: float
    failures: float


class InOrder:
    """Does what an executor does side by side one after the other, in any order."""

    def __init__(self, play: Play) -> None:
        self._play = play

    def map(self, call: Callable[[Any], Any], loads: Iterable[Any]) -> Iterator[Any]:
        answers: dict[int, Any] = {}
        numbered = list(enumerate(loads))
        self._play.random.shuffle(numbered)
        for position, load in numbered:
            answers[position] = call(load)
        return iter([answers[position] for position in range(len(numbered))])


class Destination:
    """Where one relay delivers: events behave as their payload says."""

    limits = Limits(entries=ENTRIES, entry_bytes=1_000_000, call_bytes=1_000_000)

    def __init__(self, play: Play, actor: Actor) -> None:
        self._play = play
        self._actor = actor

    @staticmethod
    def size(event: Envelope) -> int:
        return len(event.payload)

    def publish(self, events: Sequence[Envelope]) -> list[Outcome]:
        self._play.judged(lambda: self._play.watch.sends(self._actor))
        self._play.gate()
        outcomes = [self._deliver(event) for event in events]
        self._play.gate()
        for event, outcome in zip(events, outcomes, strict=True):
            self._play.watch.answers(self._actor, event, outcome)
        return outcomes

    def _deliver(self, event: Envelope) -> Outcome:
        play = self._play
        kind = "good" if event.id in play.mended else name_of(event.payload)[2]
        if kind == "killer":
            play.die()
        if play.down:
            return unavailable()
        outcome = play.outcome(kind)
        if isinstance(outcome, Sent) or play.happens(play.weather.failures / 4):  # an answer that got lost
            play.judged(lambda: play.watch.accepts(self._actor, event))
        return outcome


class Play(Stage):
    """A run by its seed."""

    def __init__(self, seed: int, *, steps: int = 160) -> None:
        super().__init__(seed)
        self.seed = seed
        self.steps_left = steps
        self.trace: list[str] = []
        self.violation: Violation | None = None
        self.watch = Watch("outbox-table", "leases-table", "repos-table", "owners-table")
        self.tables = Tables(KEYS, self.watch.sees)
        self.watch.tables = self.tables
        self.commands: dict[str, Command] = {}
        self.mended: set[str] = set()
        self.down = False
        self.started = 0
        self.faulty: set[Actor] = set()
        self.spells: dict[Actor, tuple[str, int, ClientError]] = {}
        self.weather = self._weather()
        self.crash_rate = self.weather.crashes
        self.repos = self._repos()
        self.shards = self.random.choice([1, 1, 2])

    def _weather(self) -> Weather:
        if self.happens(0.15):
            return Weather(0, 0, 0, self.random.choice([0, 0.1]))
        pick = self.random.choice
        return Weather(pick([0, 0.002, 0.01]), pick([0, 0.02, 0.06]), pick([0, 0.3, 0.8]), pick([0, 0.05, 0.2, 0.5]))

    def _repos(self) -> list[str]:
        return [f"repo-{number}" for number in range(self.random.choice([1, 2, 3, 6]))]

    # A run

    def run(self) -> None:
        """Play, recover and judge.

        Raises
        ------
        Violation
            If a promise is broken.
        """
        try:
            for _ in range(self.steps_left):
                self._act()
                self._check()
            self._recover()
            self._judge_the_end()
        finally:
            self.close()

    def happens(self, chance: float) -> bool:
        """Throw dice."""
        return chance > 0 and self.random.random() < chance

    def judged(self, look: Callable[[], None]) -> None:
        """Keep the first violation, whichever thread it is found by."""
        try:
            look()
        except Violation as violation:
            self.violation = self.violation or violation
            raise

    def _check(self) -> None:
        if self.violation is not None:
            raise self.violation

    def _act(self) -> None:
        deeds: list[tuple[Callable[[], None], int]] = [
            (self._begin_something, 30),
            (self._go_on, 55),
            (self._let_time_pass, 12),
            (self._freeze_one, 5),
            (self._take_over, 8),
            (self._disturb, 5),
        ]
        (deed,) = self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])
        deed()

    def _begin_something(self) -> None:
        if len(self.actors) >= 7:
            self._go_on()
            return
        deeds: list[tuple[Callable[[], Actor], int]] = [
            (self._command, 50),
            (self._drain, 25),
            (self._sweep, 8),
            (self._operator, 14),
            (lambda: self._job("cleanup", cleanup), 2),
            (lambda: self._job("fenced", fenced), 5),
        ]
        (deed,) = self.random.choices([deed for deed, _ in deeds], [weight for _, weight in deeds])
        actor = deed()
        if self.happens(0.5):
            self._let(actor)

    def _go_on(self) -> None:
        ready = [actor for actor in self.actors if actor.wakes_at <= self.time]
        if ready:
            self._let(self.random.choice(ready))

    def _let(self, actor: Actor) -> None:
        self.step(actor, self.random.choice([1, 1, 2, 3, 5, 8, 15, 40, 200]))
        self._look_at(actor)

    def _let_time_pass(self) -> None:
        seconds = self.random.choices(TIMES, TIME_WEIGHTS)
        self.time += seconds[0]
        self.note("time", seconds[0])

    def _freeze_one(self) -> None:
        actor = self._one_at_work()
        if actor is not None:
            actor.freeze(self.time + self.random.choice([20, 55, 62, 130, 400]), stands_still=self.happens(0.5))
            self.note("frozen", actor.name)

    def _take_over(self) -> None:
        """Freeze one for about as long as it holds its lease, and let another begin the same work before it wakes."""
        actor = self._one_at_work()
        if actor is None:
            return
        actor.freeze(0, stands_still=self.happens(0.3))
        self.time += self.random.choice([51, 53, 55, 57, 59, 61, 64])
        self.note("taken over", actor.name)
        name, _ = self.watch.turn[actor]
        successor = self._drain(int(name[-2:])) if name.startswith("relay") else self._job("fenced", fenced)
        self._let(successor)
        self._check()
        if actor in self.actors:
            self._let(actor)

    def _one_at_work(self) -> Actor | None:
        chosen = [actor for actor in self.actors if actor in self.watch.turn and actor.wakes_at <= self.time]
        return self.random.choice(chosen) if chosen and self.happens(self.weather.freezes) else None

    def _disturb(self) -> None:
        if self.happens(0.3):
            self.down = not self.down and self.weather.failures > 0
        elif self.actors:
            actor = self.random.choice(self.actors)
            actor.clock.skew = self.random.choice([-SKEW, SKEW, self.random.uniform(-SKEW, SKEW)])

    def _look_at(self, actor: Actor) -> None:
        found = actor.error
        if actor.ended and isinstance(found, Violation):
            self.violation = self.violation or found
        elif actor.ended and isinstance(found, RowChanged | Superseded) and actor in self.watch.committed:
            raise Violation("one commit per key", f"{actor.name} committed, and says {found!r}") from found
        elif actor.ended and isinstance(found, Exception) and actor not in self.faulty:
            self._unforeseen(actor, found)

    def _unforeseen(self, actor: Actor, found: Exception) -> None:
        if not isinstance(found, EXPECTED):
            raise Violation("no surprises", f"{actor.name} ended with {found!r}, and nothing failed") from found

    def note(self, *what: object) -> None:
        """Remember for the report of a failure."""
        self.trace.append(f"{self.time:10.3f} " + " ".join(str(each) for each in what))

    # Processes

    def _actor(self, name: str, work: Callable[[Actor], object]) -> Actor:
        self.started += 1
        skew = self.random.choice([-SKEW, 0, SKEW, self.random.uniform(-SKEW, SKEW)])
        return self.start(f"{name}-{self.started}", work, skew=skew)

    def runtime(self, actor: Actor) -> Runtime:
        """Answer a process's surroundings."""
        return Runtime(SETTINGS, APP_SETTINGS, clock=actor.clock, random=actor.random)

    def _command(self) -> Actor:
        recent = [each for each in self.commands.values() if each.keyed and self._known(each)]
        if recent and self.happens(0.3):
            command = self.random.choice(recent)
        else:
            kinds = tuple(self.random.choices(KINDS, k=self.random.choice([1, 1, 2, 3, 5])))
            repo = self.random.choice(self.repos)
            command = Command(f"key-{len(self.commands)}", repo, kinds, self.happens(0.4), self.time)
            self.commands[command.key] = command
            self.watch.promised[command.key] = len(kinds)
        actor = self._actor(command.key, lambda actor: self.execute(command, actor))
        if not command.keyed and self.happens(0.2):
            actor.clock.skew = self.random.choice([-HOUR, HOUR])  # an id is later than the one before all the same
        return actor

    def execute(self, command: Command, actor: Actor) -> None:
        """Do what a client asks for."""
        runtime = self.runtime(actor)
        if not self._known(command):
            return
        if not command.keyed:
            _carry_out(command, runtime)
            return
        once = Idempotency(runtime, prefix="play", life=KEY_LIFE)
        act = lambda: _carry_out(command, runtime)  # noqa: E731 - it is an argument
        outcome = once.run(key=command.key, act=act, remaining_ms=WINDOW_MS, fingerprint=command.repo)
        if outcome.value != command.key:
            raise Violation("one commit per key", f"{command.key} was answered with {outcome.value}")

    def _known(self, command: Command) -> bool:
        """Answer whether a key is young enough to be asked for again: after its life it is another request."""
        return self.time - command.since < KEY_LIFE / 2

    def relay(self, actor: Actor) -> Relay:
        """Make a process's relay."""
        relay = Relay(self.runtime(actor), Destination(self, actor))
        relay._threads = InOrder(self)  # type: ignore[assignment]
        return relay

    def _drain(self, shard: int | None = None) -> Actor:
        shard = self.random.randrange(self.shards) if shard is None else shard
        pages, seconds = self.random.choice([None, None, 1]), self.random.choice([None, None, 20])

        def work(actor: Actor) -> None:
            deadline = None if seconds is None else actor.clock.monotonic() + seconds
            self.relay(actor).drain(shard, pages=pages, deadline=deadline)

        return self._actor(f"drain#{shard}", work)

    def _sweep(self) -> Actor:
        def work(actor: Actor) -> None:
            deadline = actor.clock.monotonic() + 55
            over = lambda: actor.clock.monotonic() >= deadline  # noqa: E731 - it is an argument
            sweep(self.relay(actor), self.runtime(actor), deadline=deadline, out_of_time=over)

        return self._actor("sweep", work)

    def _job(self, name: str, declaration: Any) -> Actor:
        return self._actor(name, lambda actor: JobEdge(declaration, self.runtime(actor)).run(LambdaContext()))

    def _operator(self) -> Actor:
        stopped = [*self._dead(), *self._waiting()]
        chosen = self.random.sample(stopped, min(len(stopped), 3))
        deed = self.random.choice([self._redrive, self._redrive, self._discard, self._edit, self._edit])
        return self._actor(deed.__name__.strip("_"), lambda actor: deed(OutboxLetters(self.runtime(actor)), chosen))

    def _redrive_all(self) -> Actor:
        dead = self._dead()
        self.mended.update(dead)
        return self._actor("redrive", lambda actor: self._redrive(OutboxLetters(self.runtime(actor)), dead))

    def _dead(self) -> list[str]:
        return sorted(event_id for partition, event_id in self.tables.rows["outbox-table"] if partition == DEAD)

    def _waiting(self) -> list[str]:
        rows = self.tables.rows["outbox-table"].items()
        return sorted(key[1] for key, row in rows if key[0].startswith(PENDING_PREFIX) and "failure" in row)

    def _redrive(self, letters: OutboxLetters, chosen: list[str]) -> None:
        self.mended.update(each for each in chosen if self.happens(0.5))
        for result in letters.redrive(chosen, DEED):
            self.note("redriven", result.id, result.fate)

    def _discard(self, letters: OutboxLetters, chosen: list[str]) -> None:
        for result in letters.discard(chosen, DEED):
            self.note("discarded", result.id, result.fate)

    def _edit(self, letters: OutboxLetters, chosen: list[str]) -> None:
        for event_id in chosen:
            result = letters.edit(event_id, '{"name":"edit/0/good"}', DEED)
            self.note("edited", result.id, result.fate, result.detail)
            if result.fate is Fate.DONE and result.detail not in self.watch.stories:
                raise Violation("nothing lost", f"the copy of {event_id} is nowhere")

    # AWS and the destination

    def aws(self, operation: str, asked: Any) -> Item:
        """Answer a call of the process that is on; it may fail, before or after it took effect."""
        actor = self.current
        if actor is None:
            return self.tables.perform(operation, asked)
        self.gate()
        early, late, twice = self._faults(actor, operation, asked)
        if early is not None:
            self.note(actor.name, operation, "fails", early)
            raise early
        answer = self._effect(actor, operation, asked)
        if operation == "BatchWriteItem" and self.happens(self.weather.crashes * 10):
            self.die()
        if twice:
            answer = self._effect(actor, operation, asked)
        if late is not None:
            self.note(actor.name, operation, "took effect and fails", late)
            raise late
        return answer

    def _effect(self, actor: Actor, operation: str, asked: Any) -> Item:
        asked, left = self._shortened(actor, operation, asked)
        self.watch.by = actor
        try:
            answer = self.tables.perform(operation, asked)
            self.judged(self.watch.settles)
            self.note(actor.name, operation, _described(operation, asked))
        except ClientError as refused:
            self.note(actor.name, operation, refused.response["Error"]["Code"])
            raise
        except Violation as violation:
            self.violation = self.violation or violation
            raise
        finally:
            self.watch.by = None
        self.gate()
        return {**answer, **left}

    def _faults(self, actor: Actor, operation: str, asked: Any) -> tuple[Exception | None, Exception | None, bool]:
        spell = self._under_a_spell(actor, operation, asked)
        if spell is not None:
            self._note_fault(actor)
            return spell, None, False
        if not self.happens(self.weather.faults * _PRONE.get(operation, 1)):
            return None, None, False
        self._note_fault(actor)
        late = ReadTimeoutError(endpoint_url="https://aws.example")
        if self.happens(0.2):
            return None, late, False
        if self.happens(0.2):
            return None, None, True
        early = self._refusal(operation, asked)
        self.spells[actor] = (_sort_of(operation, asked), self.random.choice([0, 0, 1, 4, 4, 6]), early)
        return early, None, False

    def _under_a_spell(self, actor: Actor, operation: str, asked: Any) -> ClientError | None:
        sort, times, refusal = self.spells.get(actor, ("", 0, error("none")))
        if times == 0 or sort != _sort_of(operation, asked):
            return None
        self.spells[actor] = (sort, times - 1, refusal)
        return refusal

    def _refusal(self, operation: str, asked: Any) -> ClientError:
        codes = ["ThrottlingException", "InternalServerError", "RequestTimeout", "AccessDeniedException"]
        if operation == "TransactWriteItems":
            conflict = canceled([{"Code": "TransactionConflict", "Message": "busy"}] * len(asked["TransactItems"]))
            return self.random.choice([conflict, error(codes[0]), error(codes[1])])
        if operation == "BatchWriteItem":
            codes += ["ValidationException"] * 4  # which is not tried again
        if operation == "UpdateItem" and asked["TableName"] != "outbox-table":
            codes += ["TransactionConflictException"] * 2
        return error(self.random.choice(codes))

    def _shortened(self, actor: Actor, operation: str, asked: Any) -> tuple[Any, Item]:
        """Leave some of a batch undone."""
        if not operation.startswith("Batch") or not self.happens(self.weather.faults):
            return asked, {}
        self._note_fault(actor)
        ((table, requests),) = asked["RequestItems"].items()
        if operation == "BatchWriteItem":
            kept, left = self._split(requests)
            return {"RequestItems": {table: kept}}, {"UnprocessedItems": {table: left} if left else {}}
        kept, left = self._split(requests["Keys"])
        unread = {table: {**requests, "Keys": left}} if left else {}
        return {"RequestItems": {table: {**requests, "Keys": kept}}}, {"UnprocessedKeys": unread}

    def _split(self, requests: list[Any]) -> tuple[list[Any], list[Any]]:
        at = self.random.randint(0, len(requests))
        return requests[:at], requests[at:]

    def _note_fault(self, actor: Actor) -> None:
        self.faulty.add(actor)
        self.watch.trouble(actor)

    def sleep(self, seconds: float) -> None:
        """Let time pass for the process that is on."""
        actor = self.current
        if actor is not None and seconds >= 1 and actor not in self.faulty:
            self.judged(lambda: self.watch.waits(actor))
        super().sleep(seconds)

    def on_death(self, actor: Actor) -> None:
        """Note that what it had begun may be done again."""
        self.note(actor.name, "dies")
        self.watch.trouble(actor)

    def outcome(self, kind: str) -> Outcome:
        """Answer what the destination says of an event that behaves so."""
        if kind in _ALWAYS:
            return _ALWAYS[kind]
        if kind == "doomed" or (kind == "flaky" and self.happens(0.5)):
            return transient()
        if self.happens(self.weather.failures / 4):
            return unavailable()
        if self.happens(self.weather.failures / 2):
            return not_taken()
        return transient() if self.happens(self.weather.failures) else SENT

    # Recovery

    def _recover(self) -> None:
        self.note("--- recovery")
        self.weather = Weather(0, 0, 0, 0)
        self.crash_rate, self.down = 0.0, False
        self.spells.clear()
        while self.actors:
            self._finish_some()
        for command in self.commands.values():
            if command.keyed and self._known(command):
                self._ask_until_done(command)
        self._sweep_all()
        if self.happens(0.3):
            self._finish(self._redrive_all())
            self._sweep_all()

    def _sweep_all(self) -> None:
        for _ in range(ROUNDS):
            if not self._pending():
                return
            self.time += 500
            self._finish(self._sweep())
        raise Violation("others go on", f"still pending after {ROUNDS} sweeps: {self._pending()[:5]}")

    def _finish_some(self) -> None:
        ready = [actor for actor in self.actors if actor.wakes_at <= self.time]
        if ready:
            self._let(self.random.choice(ready))
        else:
            self.time = min(actor.wakes_at for actor in self.actors)
        self._check()

    def _finish(self, actor: Actor) -> None:
        self.finish(actor)
        self._look_at(actor)
        self._check()

    def _ask_until_done(self, command: Command) -> None:
        for _ in range(3):
            actor = self._actor(command.key, lambda actor: self.execute(command, actor))
            self._finish(actor)
            if actor.error is None:
                break
            self.time += 30
        if self.watch.commits[command.key] != 1:
            raise Violation("one commit per key", f"{command.key} came to no end: {actor.error!r}")

    def _pending(self) -> list[str]:
        rows = self.tables.rows["outbox-table"]
        return [event_id for partition, event_id in rows if partition.startswith(PENDING_PREFIX)]

    def _judge_the_end(self) -> None:
        self.note("--- the end")
        self.time += 2 * SETTINGS.timings.lease
        delivered = sum(story.accepted for story in self.watch.stories.values())
        for shard in range(self.shards):
            self._finish(self._drain(shard))
            row = self.tables.item("leases-table", f"relay#{shard:02d}")
            if row is None or not row["clean"]["BOOL"] or row["held_until"]["N"] != "0":
                raise Violation("lease", f"the lease of shard {shard} stays unclean: {row}")
        if delivered != sum(story.accepted for story in self.watch.stories.values()):
            raise Violation("sent once", "something is sent again although nothing was pending")
        for story in self.watch.stories.values():
            places = self.watch.places(story.id)
            if len(places) != 1 and not story.strayed:
                raise Violation("nothing lost", f"{story.id} is in {places}")
        for command in self.commands.values():
            if self.watch.births[command.key] != self.watch.commits[command.key] * len(command.kinds):
                raise Violation("row and event", command.key)


_PRONE = {"BatchWriteItem": 5, "TransactWriteItems": 3}
"""Calls that fail more often than others here, since more depends on them."""
_REFUSED = permanent()
object.__setattr__(_REFUSED, "type", "Refused")
_ALWAYS = {
    "refused": _REFUSED,
    "barred": Failure(FailureKind.TRANSIENT, "Barred", "not this type", retry_after=900),
    "jammed": not_taken(),
}
"""What the destination says of events of a kind, whatever the weather."""


def _carry_out(command: Command, runtime: Runtime) -> str:
    work = UnitOfWork(runtime, COMMAND)
    repo = work.get(Repo, command.repo) or Repo(command.repo, owner_id="owner", created_at="-")
    repo.name = command.key
    work.save(repo)
    for position, kind in enumerate(command.kinds):
        event = RepoCreated(repo_id=repo.id, name=f"{command.key}/{position}/{kind}", owner_id="owner")
        work.publish(event, about=repo)
    work.commit(command.key)
    return command.key


def _sort_of(operation: str, asked: Any) -> str:
    if operation != "BatchWriteItem":
        return operation
    ((_, requests),) = asked["RequestItems"].items()
    return f"{operation} {next(iter(requests[0]))}" if requests else operation


def _described(operation: str, asked: Any) -> str:
    if operation == "BatchWriteItem":
        ((_, requests),) = asked["RequestItems"].items()
        return " ".join(f"{kind[:3]} {_id_in(body)}" for request in requests for kind, body in request.items())
    if operation == "UpdateItem":
        return f"{_id_in(asked)} {asked['UpdateExpression'][:40]}"
    if operation == "TransactWriteItems":
        return " ".join(f"{kind} {_id_in(body)}" for each in asked["TransactItems"] for kind, body in each.items())
    return ""


def _id_in(body: Item) -> str:
    return "/".join(value["S"] for value in list((body.get("Key") or body["Item"]).values())[:2] if "S" in value)


class Sorted(set[str]):
    """A set that is walked in order: hashes of strings differ from one interpreter to the next, and a seed must not."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(super().__iter__()))


@contextmanager
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Play], None]]:
    """Put small pages and silent logs in place; what it answers runs a play."""
    with monkeypatch.context() as patch:
        _make_small(patch)
        _make_quiet(patch)
        bind(SETTINGS, APP_SETTINGS)
        among, check, ensure = OutboxTable.among, HeldLease._stop_if_over, HeldLease.ensure
        patch.setattr(OutboxTable, "among", lambda *args: Sorted(among(*args)))

        def run(play: Play) -> None:
            def checked(held: HeldLease) -> None:
                check(held)
                play.judged(lambda: play.watch.passes(play.current, held.name, held.token))

            def ensured(held: HeldLease) -> None:
                try:
                    ensure(held)
                except LeaseLost:
                    play.watch.loses(play.current, held.name)
                    raise

            for module in (event_module, relay_module, sweep_module):
                patch.setattr(module, "SHARDS", play.shards)
            patch.setattr(HeldLease, "_stop_if_over", checked)
            patch.setattr(HeldLease, "ensure", ensured)
            patch.setattr(botocore.client.BaseClient, "_make_api_call", lambda _, *call: play.aws(*call))
            play.run()

        yield run


def _make_small(patch: pytest.MonkeyPatch) -> None:
    for module in (table_module, walk_module):
        patch.setattr(module, "PAGE_SIZE", PAGE)
    for module in (table_module, turn_module):
        patch.setattr(module, "BATCH_WRITE", WRITES)
    page = OutboxTable.page
    patch.setattr(
        OutboxTable, "page", lambda self, shard, cursor=None, *, limit=PAGE: page(self, shard, cursor, limit=limit)
    )


def _make_quiet(patch: pytest.MonkeyPatch) -> None:
    for name in ("log", "log_each", "log_error", "count", "measure_seconds"):
        patch.setattr(telemetry, name, lambda *_, **__: None)
    patch.setattr("mailroom.idempotency.log_error", lambda *_, **__: None)
