"""Saga rows: where a saga stands, what happened to each of its steps, and which sagas are not finished."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.indexes import AllProjection, GlobalSecondaryIndex

from mailroom.attributes import TTLAttribute
from mailroom.checked_attributes import (
    ChoiceAttribute,
    FailureAttribute,
    Flaw,
    JsonAttribute,
    MomentAttribute,
    read_json,
)
from mailroom.dead_letters.letter import Deed
from mailroom.failures import Failure
from mailroom.row import Item, SubjectRow


class Status(StrEnum):
    """Where a saga stands."""

    RUNNING = "running"
    COMPENSATING = "compensating"
    STUCK = "stuck"
    """It waits for an operator: see `Trouble`."""
    COMPLETED = "completed"
    COMPENSATED = "compensated"


UNFINISHED = (Status.STUCK, Status.RUNNING, Status.COMPENSATING)
"""What the index lists."""


class Direction(StrEnum):
    """Whether a step is done or undone."""

    ACTION = "action"
    COMPENSATION = "compensation"


class Outcome(StrEnum):
    """What came of a step."""

    DONE = "done"
    FAILED = "failed"
    """An action's last attempt: the saga compensates."""
    STUCK = "stuck"
    RETRIED = "retried"
    """Nothing came of it yet: an operator had it asked for again."""


class Trouble(StrEnum):
    """Why a saga is stuck."""

    VERSION = "version"
    """Its steps are not those of the deployed definition, or that cannot read its data."""
    COMPENSATION = "compensation"
    """A step could not be undone."""


class StepState(StrEnum):
    """Where one step of a saga stands."""

    NOT_BEGUN = "not begun"
    DONE = "done"
    FAILED = "failed"
    UNDONE = "undone"
    STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Transition:
    """One thing that happened to a saga.

    Parameters
    ----------
    token
        What the step's effects outside carry.
    failure
        What went wrong, if anything did.
    deed
        Who had it asked for again, if somebody did.
    """

    step: str
    direction: Direction
    outcome: Outcome
    at: str
    token: str
    failure: Failure | None = None
    deed: Deed | None = None

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return {
            "step": self.step,
            "direction": self.direction.value,
            "outcome": self.outcome.value,
            "at": self.at,
            "token": self.token,
            "failure": json.loads(self.failure.to_json()) if self.failure else None,
            "deed": asdict(self.deed) if self.deed else None,
        }

    @classmethod
    def from_dict(cls, stored: dict[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        failure, deed = stored["failure"], stored.get("deed")
        return cls(
            step=stored["step"],
            direction=Direction(stored["direction"]),
            outcome=Outcome(stored["outcome"]),
            at=stored["at"],
            token=stored["token"],
            failure=Failure.from_json(json.dumps(failure)) if failure else None,
            deed=Deed(**deed) if deed else None,
        )

    @property
    def state(self) -> StepState:
        """Where its step stood then.

        Raises
        ------
        ValueError
            If it is a retry: that leaves a step where it stood.
        """
        undone = self.direction is Direction.COMPENSATION and self.outcome is Outcome.DONE
        return StepState.UNDONE if undone else StepState(self.outcome.value)

    def repeats(self, other: Transition) -> bool:
        """Answer whether the same came of the same step before."""
        return (self.step, self.direction, self.outcome) == (other.step, other.direction, other.outcome)


class _StepsAttribute(UnicodeAttribute):
    """The names of a saga's steps."""

    def deserialize(self, value: str) -> str:
        """Return the text."""
        names = read_json(value)
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            raise Flaw("is no list of names")
        return value


class _TransitionsAttribute(UnicodeAttribute):
    """What happened to a saga."""

    def deserialize(self, value: str) -> str:
        """Return the text."""
        try:
            for each in read_json(value):
                Transition.from_dict(each)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise Flaw("is no list of transitions") from None
        return value


MAX_SAGA_HISTORY_BYTES = 250 * 1024
"""A row has 400 KB, of which the data takes 100,000 bytes (`MAX_DATA_BYTES`)."""


def _fitted(transitions: list[Transition]) -> str:
    """Write transitions, each of which tells where a step stands; of too many the oldest tell nothing more."""
    told = [_json(each.to_dict()) for each in transitions]
    excess = sum(len(each.encode()) + 2 for each in told) - MAX_SAGA_HISTORY_BYTES
    for at, each in enumerate(transitions):
        if excess <= 0:
            break
        bare = _json(replace(each, failure=None, deed=None).to_dict())
        excess -= len(told[at].encode()) - len(bare.encode())
        told[at] = bare
    return f"[{', '.join(told)}]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class UnfinishedIndex(GlobalSecondaryIndex["SagaRow"]):  # type: ignore[no-untyped-call]
    """The sagas that are not finished, by status, those that have not moved for longest first; sparse."""

    class Meta:
        index_name = "unfinished"
        projection = AllProjection()

    unfinished = UnicodeAttribute(hash_key=True)
    updated_at = UnicodeAttribute(range_key=True)


class SagaRow(SubjectRow):
    """One saga; its requests have the subject `sagas/<id>`."""

    class Meta:
        short_name = "sagas"

    deletable = False

    id = UnicodeAttribute(hash_key=True)
    saga = UnicodeAttribute()
    """The definition's name."""
    steps = _StepsAttribute()
    """The names of its steps when it was started; JSON."""
    data = JsonAttribute()
    owner_id = UnicodeAttribute(null=True)
    """Who may see it."""
    status = ChoiceAttribute(Status)
    direction = ChoiceAttribute(Direction)
    position = NumberAttribute()
    """Of the step that is being done or undone; past the end once completed, before the first once compensated."""
    failure = FailureAttribute(null=True)
    """Why it compensates."""
    trouble = ChoiceAttribute(Trouble, null=True)
    """Why it is stuck, while it is; and below what went wrong and the request that died of it."""
    trouble_failure = FailureAttribute(null=True)
    trouble_request = UnicodeAttribute(null=True)
    history = _TransitionsAttribute(default="[]")
    created_at = MomentAttribute()
    updated_at = MomentAttribute()
    unfinished = UnicodeAttribute(null=True)
    """The status, while it is not finished."""
    expires_at = TTLAttribute(null=True)
    index = UnfinishedIndex()

    @classmethod
    def further_flaws(cls, item: Item) -> dict[str, str]:
        """Return what is wrong with the position: it is that of no step, though there is one to be done or undone."""
        if "S" not in item.get("unfinished", {}) or not {"position", "steps"} <= item.keys():
            return {}
        steps, position = json.loads(item["steps"]["S"]), json.loads(item["position"]["N"])
        return {} if position in range(len(steps)) else {"position": "is that of no step"}

    @property
    def step_names(self) -> list[str]:
        """The names of its steps."""
        names: list[str] = json.loads(self.steps)
        return names

    @property
    def step_name(self) -> str:
        """The step that is being done or undone."""
        return self.step_names[int(self.position)]

    @property
    def token(self) -> str:
        """What the effects of the present step outside our tables carry."""
        return f"{self.id}:{self.step_name}:{self.direction}"

    @property
    def transitions(self) -> list[Transition]:
        """What happened to it, oldest first."""
        return [Transition.from_dict(each) for each in json.loads(self.history)]

    @property
    def why_it_compensates(self) -> Failure | None:
        """What could not be done, if anything could not."""
        return Failure.from_json(self.failure) if self.failure else None

    def states(self) -> dict[str, StepState]:
        """Answer where each step stands, in the order in which they are done."""
        over = {Outcome.RETRIED} if self.status == Status.STUCK else {Outcome.RETRIED, Outcome.STUCK}
        return dict.fromkeys(self.step_names, StepState.NOT_BEGUN) | {
            each.step: each.state for each in self.transitions if each.outcome not in over
        }

    def note(self, outcome: Outcome, at: str, failure: Failure | None = None, deed: Deed | None = None) -> None:
        """Note what came of the present step; of the same again the latest is kept, and of all what fits the row."""
        new = Transition(self.step_name, Direction(self.direction), outcome, at, self.token, failure, deed)
        kept = [each for each in self.transitions if not new.repeats(each)]
        self.history = _fitted([*kept, new])
        self.updated_at = at

    def become(self, status: Status) -> None:
        """Stand elsewhere; what was stuck is not any more."""
        self.status = status.value
        self.unfinished = status.value if status in UNFINISHED else None
        self.trouble = self.trouble_failure = self.trouble_request = None

    def take_up(self, deed: Deed) -> None:
        """Go on where it stands, and note who wanted it."""
        self.note(Outcome.RETRIED, deed.at, deed=deed)
        self.become(Status.RUNNING if self.direction == Direction.ACTION else Status.COMPENSATING)

    def stick(self, trouble: Trouble, failure: Failure, request_id: str) -> None:
        """Wait for an operator, who sends the request again that died, or has the step asked for anew."""
        self.become(Status.STUCK)
        self.trouble = trouble.value
        self.trouble_failure = failure.to_json()
        self.trouble_request = request_id
