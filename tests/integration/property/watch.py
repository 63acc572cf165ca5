"""What must hold at each write and each delivery, whatever was interleaved with what."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mailroom.clock import moment
from mailroom.failures import Failure, FailureKind
from mailroom.outbox.event import Envelope, shard_of_id
from mailroom.outbox.relay import lease_name
from mailroom.outbox.table import DEAD, DISCARDED, PENDING_PREFIX, SENT_PREFIX, pending
from mailroom.outbox.wave import SIDE_BY_SIDE
from mailroom.publishers.publisher import NotTaken, Outcome

from .interleaving import Actor
from .tables import Item, Tables

ATTEMPTS = 5
SKEW = 5
OUTAGE = 3_600
"""Seconds for which an event waits uncounted that is not taken by itself."""
JUDGED_WITHIN = 70
"""Seconds between an answer and what is made of it at most: the lease is over by then."""
Rule = Literal[
    "row and event",
    "nothing lost",
    "sent once",
    "in order",
    "others go on",
    "five attempts",
    "one commit per key",
    "lease",
    "no ghosts",
    "no surprises",
]
Turn = tuple[str, int]
"""One hold of a lease: its name and token."""


class Violation(BaseException):
    """A promise was broken. No `Exception`: the code under test must not catch it."""

    def __init__(self, rule: Rule, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


@dataclass
class Story:
    """What happened to one event.

    Parameters
    ----------
    turns
        The turns in which the destination got it, in this life: a redrive begins another.
    tries
        In how many turns the destination answered in the end what costs an attempt, in this life.
    answered
        The turn of its last answer, and the tries before that turn.
    borderline
        It was not taken about when that began to count.
    marked
        A relay that had the lease put it into `sent`.
    strayed
        A relay that had lost the lease wrote to it, between its check and its write, or an operator who had stood
        still for a minute there: the documented limits.
    doubted
        An answer about it was lost, so that nobody can know.
    """

    id: str
    after: str | None
    payload: str
    accepted: int = 0
    turns: list[Turn] = field(default_factory=list)
    attempted: list[Turn] = field(default_factory=list)
    tries: int = 0
    answered: tuple[Turn | None, int] = (None, 0)
    borderline: bool = False
    marked: bool = False
    strayed: bool = False
    doubted: bool = False
    died: bool = False

    def begin_again(self) -> None:
        """Forget the life before: it was redriven."""
        self.turns, self.attempted, self.tries, self.doubted = [], [], 0, False
        self.answered, self.borderline = (None, 0), False


class Watch:
    """Sees every write to the tables and every delivery, and raises `Violation` where a promise breaks."""

    def __init__(self, outbox: str, leases: str, repos: str, owners: str) -> None:
        self.stories: dict[str, Story] = {}
        self.latest: dict[str, str] = {}
        self.commits: Counter[str] = Counter()
        self.births: Counter[str] = Counter()
        self.promised: dict[str, int] = {}
        self.troubled: set[Turn] = set()
        self.held: dict[Actor, dict[str, int]] = defaultdict(dict)
        self.turn: dict[Actor, Turn] = {}
        self.fenced: Counter[Actor] = Counter()
        self.unchecked: Counter[Actor] = Counter()
        self.lost: set[tuple[Actor | None, str]] = set()
        self.committed: set[Actor] = set()
        self.by: Actor | None = None
        self.tables: Tables
        self._seers = {outbox: self._outbox, leases: self._lease, repos: self._repo, owners: self._owner}
        self._outbox_table, self._leases_table = outbox, leases
        self._moved: set[str] = set()
        self._keys: set[str] = set()

    # Writes

    def sees(self, table: str, old: Item | None, new: Item | None) -> None:
        """Judge a write by the actor that is on."""
        seer = self._seers.get(table)
        if seer is not None:
            seer(old, new)

    def settles(self) -> None:
        """Judge what a whole call wrote."""
        for event_id in self._moved:
            if not self.places(event_id):
                raise Violation("nothing lost", f"{event_id} is nowhere")
        for key in self._keys:
            if self.births[key] != self.commits[key] * self.promised[key]:
                raise Violation("row and event", f"{key}: {self.commits[key]} rows, {self.births[key]} events")
        self._moved.clear()
        self._keys.clear()

    def places(self, event_id: str) -> list[str]:
        """Answer the partitions that have an event."""
        shard = event_id.rpartition("-")[2]
        partitions = (f"{PENDING_PREFIX}{shard}", f"{SENT_PREFIX}{shard}", DEAD, DISCARDED)
        return [each for each in partitions if self.tables.item(self._outbox_table, each, event_id)]

    def _outbox(self, old: Item | None, new: Item | None) -> None:
        row = new or old or {}
        partition, event_id = row["partition"]["S"], row["event_id"]["S"]
        if self.by is not None and (self.by, _lease_of(event_id)) in self.lost:
            raise Violation("lease", f"{self.by.name} writes {event_id} although it knows its lease is over")
        if new is None:
            self._moved.add(event_id)
            if self._is_late_deed(old):
                self.stories[event_id].strayed = True
            return
        _check_life(new, partition)
        if event_id not in self.stories:
            self._born(new)
        story = self.stories[event_id]
        if story.payload != new["payload"]["S"]:
            raise Violation("nothing lost", f"{event_id} in {partition} is another event by now")
        if self._stray(event_id):
            story.strayed = True
        if partition.startswith(SENT_PREFIX):
            self._marked(story)
        elif partition == DEAD:
            self._died(story, new)
        elif partition == DISCARDED:
            story.died = True
            if story.marked and not story.strayed:
                raise Violation("sent once", f"{event_id} was marked and is discarded")
        elif partition.startswith(PENDING_PREFIX):
            self._waits(story, old, new)

    def _is_late_deed(self, old: Item | None) -> bool:
        """Answer whether an operator, who stood still since its look, moves what a relay may be sending by now."""
        if self.by is None or self.by in self.turn or old is None or "next_attempt_at" not in old:
            return False
        return (moment(old["next_attempt_at"]["S"]) - self.by.clock.now()).total_seconds() < 2 * SKEW

    def _born(self, new: Item) -> None:
        event_id, after = new["event_id"]["S"], new["after"]["S"] if "after" in new else None
        if not new["partition"]["S"].startswith(PENDING_PREFIX):
            raise Violation("no ghosts", f"{event_id} came to be in {new['partition']['S']}")
        key = "an edit" if "parent" in new else name_of(new["payload"]["S"])[0]
        if key != "an edit":
            self.births[key] += 1
            self._keys.add(key)
            self._continues(new["subject"]["S"], event_id, after)
        self.stories[event_id] = Story(event_id, after, new["payload"]["S"])

    def _continues(self, subject: str, event_id: str, after: str | None) -> None:
        before = self.latest.get(subject)
        if after != before or (before is not None and event_id <= before):
            raise Violation("in order", f"{subject}: {event_id} says it comes after {after}, and {before} was there")
        self.latest[subject] = event_id

    def _marked(self, story: Story) -> None:
        if not story.accepted:
            raise Violation("nothing lost", f"{story.id} is marked as sent, and was not")
        if self.by is not None and self.unchecked[self.by]:
            raise Violation("lease", f"{self.by.name} marks {story.id} without a look at its lease")
        story.marked = story.marked or not self._stray(story.id)

    def _died(self, story: Story, new: Item) -> None:
        story.died = True
        if story.marked and not story.strayed:
            raise Violation("sent once", f"{story.id} was marked and died")
        failure = Failure.from_json(new["failure"]["S"])
        counted = int(new["retry_count"]["N"])
        if failure.type == "Refused" or story.strayed:
            return
        if counted != ATTEMPTS:
            raise Violation("five attempts", f"{story.id} died of {failure.type} after {counted}")
        if self._calm(story) and story.tries != ATTEMPTS:
            raise Violation("five attempts", f"{story.id} died after {story.tries} attempts")

    def _waits(self, story: Story, old: Item | None, new: Item) -> None:
        if old is None:
            story.begin_again()
            return
        if self.by is not None and self.by in self.turn:
            story.attempted.append(self.turn[self.by])
        retried = old.get("next_attempt_at") != new.get("next_attempt_at")
        if retried and self._calm(story) and int(new["retry_count"]["N"]) != story.tries:
            raise Violation("five attempts", f"{story.id}: {new['retry_count']['N']} counted, {story.tries} made")

    def _lease(self, old: Item | None, new: Item | None) -> None:
        if new is None:
            raise Violation("lease", "a lease was deleted")
        name, token = new["name"]["S"], int(new["token"]["N"])
        before = int(old["token"]["N"]) if old else 0
        if token < before:
            raise Violation("lease", f"the token of {name} went from {before} to {token}")
        if token == before or self.by is None:
            return
        if old is not None and old["held_until"]["N"] != "0":
            self.troubled.add((name, before))
        self.lost.discard((self.by, name))
        self.held[self.by][name] = token
        self.turn[self.by] = (name, token)

    def _repo(self, old: Item | None, new: Item | None) -> None:
        if new is None:
            return
        key = new["name"]["S"]
        if self.by is not None:
            self.committed.add(self.by)
        self.commits[key] += 1
        self._keys.add(key)
        if self.commits[key] > 1:
            raise Violation("one commit per key", f"{key} was committed {self.commits[key]} times")

    def _owner(self, old: Item | None, new: Item | None) -> None:
        if new is None or self.by is None or new["id"]["S"] != "fenced":
            return
        for name, token in self.held[self.by].items():
            self.fenced[self.by] += 1
            if self.fenced[self.by] > 1:
                raise Violation("one commit per key", f"{self.by.name} wrote twice")
            if token != self.token(name):
                raise Violation("lease", f"{name}: a write under token {token}, and {self.token(name)} has it")

    # Deliveries

    def sends(self, actor: Actor) -> None:
        """Judge a call to the destination: as many go side by side under one look at the lease, and no more."""
        self.unchecked[actor] += 1
        if self.unchecked[actor] > SIDE_BY_SIDE:
            raise Violation("lease", f"{actor.name} publishes without a look at its lease")

    def accepts(self, actor: Actor, event: Envelope) -> None:
        """Judge that the destination takes an event."""
        story, turn = self.stories[event.id], self.turn[actor]
        lost = self.token(turn[0]) != turn[1]
        if story.marked and not story.strayed and not lost:
            raise Violation("sent once", f"{event.id} was marked and is published again")
        if story.turns and not lost and not story.doubted and not self.troubled.intersection(story.turns):
            raise Violation("sent once", f"{event.id} is published again, and nothing went wrong")
        before = self.stories.get(event.after) if event.after else None
        if before is not None and not (before.accepted or before.died):
            raise Violation("in order", f"{event.id} is published before {before.id}")
        story.accepted += 1
        story.turns.append(turn)

    def answers(self, actor: Actor, event: Envelope, outcome: Outcome) -> None:
        """Note what the destination answered."""
        story = self.stories[event.id]
        story.attempted.append(self.turn[actor])
        if isinstance(outcome, Failure):
            story.doubted = story.doubted or bool(story.turns)
        turn, before = story.answered
        if turn != self.turn[actor]:
            story.answered = (self.turn[actor], before := story.tries)
        story.tries = before + self._counts(actor, story, outcome)

    def _counts(self, actor: Actor, story: Story, outcome: Outcome) -> bool:
        """Answer whether an outcome costs an attempt, if nothing better comes in the same turn."""
        if not isinstance(outcome, NotTaken):
            return isinstance(outcome, Failure) and outcome.kind is FailureKind.TRANSIENT
        row = self.tables.item(self._outbox_table, pending(shard_of_id(story.id)), story.id) or {}
        if "untaken_since" not in row:
            return False
        waited = (actor.clock.now() - moment(row["untaken_since"]["S"])).total_seconds()
        story.borderline = story.borderline or OUTAGE - JUDGED_WITHIN < waited < OUTAGE
        return waited >= OUTAGE

    def trouble(self, actor: Actor) -> None:
        """Note that something went wrong for an actor."""
        if actor in self.turn:
            self.troubled.add(self.turn[actor])

    def passes(self, actor: Actor | None, name: str, token: int) -> None:
        """Judge that a lease was looked at and found to be held."""
        if actor is None:
            return
        self.unchecked[actor] = 0
        if token != self.token(name):
            raise Violation("lease", f"{actor.name} relies on {name} by {token}, and {self.token(name)} has it")

    def loses(self, actor: Actor | None, name: str) -> None:
        """Note that an actor was told that its lease is over."""
        self.lost.add((actor, name))

    def waits(self, actor: Actor) -> None:
        """Judge that a process has nothing to do for a while: it holds up nobody."""
        for name, token in self.held[actor].items():
            if (actor, name) in self.lost:
                continue
            row = self.tables.item(self._leases_table, name) or {}
            if name.startswith("relay") and row["token"]["N"] == str(token) and row["held_until"]["N"] != "0":
                raise Violation("lease", f"{actor.name} waits and holds {name}")

    def token(self, name: str) -> int:
        """Answer a lease's token."""
        row = self.tables.item(self._leases_table, name)
        return int(row["token"]["N"]) if row else 0

    def _stray(self, event_id: str) -> bool:
        if self.by is None:
            return False
        name = _lease_of(event_id)
        return name in self.held[self.by] and self.held[self.by][name] != self.token(name)

    def _calm(self, story: Story) -> bool:
        return not story.strayed and not story.borderline and not self.troubled.intersection(story.attempted)


def _lease_of(event_id: str) -> str:
    return lease_name(int(event_id.rpartition("-")[2]))


def _check_life(new: Mapping[str, Any], partition: str) -> None:
    event_id = new["event_id"]["S"]
    if "payload" not in new:
        raise Violation("no ghosts", f"{event_id} in {partition} has no payload")
    if "expires_at" in new and partition not in (DISCARDED,) and not partition.startswith(SENT_PREFIX):
        raise Violation("nothing lost", f"{event_id} in {partition} expires")
    if int(new.get("retry_count", {"N": "0"})["N"]) > ATTEMPTS:
        raise Violation("five attempts", f"{event_id} was counted {new['retry_count']['N']} times")
    if partition == DEAD and "failure" not in new:
        raise Violation("nothing lost", f"{event_id} is dead without a reason")
    if partition == DISCARDED and "history" not in new:
        raise Violation("nothing lost", f"{event_id} was discarded by nobody")


def name_of(payload: str) -> list[str]:
    """Answer what a payload's name tells: the command's key, the position in it, and how the event behaves."""
    name: str = json.loads(payload)["name"]
    return name.split("/")
