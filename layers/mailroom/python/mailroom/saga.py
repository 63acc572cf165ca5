"""Sagas: work in several steps, each with its own transaction, that is undone step by step where it cannot be done."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from mailroom import telemetry
from mailroom.clock import timestamp
from mailroom.declarations import DeclarationError
from mailroom.failures import Failure, Permanent, failure_of
from mailroom.needs import Access, Port
from mailroom.outbox.event import Event
from mailroom.returns import flaw_of, returned
from mailroom.row import Row
from mailroom.saga_row import Direction, Outcome, SagaRow, Status
from mailroom.telemetry import LogEvent, Metric
from mailroom.unit_of_work import UnitOfWork

D = TypeVar("D", bound=BaseModel)

MAX_STEPS = 20
"""With a failure of its full size for each, the history stays below half of what an item may have."""
MAX_DATA_BYTES = 100_000


class SagaStepRequested(Event, type="saga.step_requested"):
    """A step of a saga is to be done or undone."""

    saga_id: str
    saga: str
    step: str
    position: int
    direction: Direction


STARTING = Access(writes=(SagaRow,), publishes=(SagaStepRequested,))
"""What starting a saga touches: `Routes(access=Access(…) | STARTING)`."""


class DefinitionChanged(Permanent):
    """The deployed definition does not fit a saga that was started under another."""


class SagaDataTooLarge(Permanent):
    """The data of a saga does not fit its row; nothing was written."""


@dataclass(frozen=True, slots=True)
class StepCall:
    """One attempt at a step.

    Parameters
    ----------
    work
        Takes the step's rows and events: they are committed together with the saga's transition.
    token
        `saga:step:direction`, the same in every attempt: effects outside our tables carry it.
    failure
        Why the saga compensates, if it does.
    """

    work: UnitOfWork
    saga_id: str
    token: str
    failure: Failure | None = None

    @property
    def action_token(self) -> str:
        """The token that the step's action had: a compensation knows by it what it is to undo."""
        return f"{self.token.rpartition(':')[0]}:{Direction.ACTION}"


Act = Callable[[D, StepCall], D | None]
"""Does a step or undoes it, on the saga's data; it may answer changed data for the steps after it."""


@dataclass(frozen=True, slots=True)
class Step(Generic[D]):
    """One step, named by its action's function.

    Parameters
    ----------
    compensation
        Undoes what the action did; without it there is nothing to undo.
    reaches_outside
        The action has effects outside our tables, so that it is undone even if it failed: nobody knows how far it
        came. Its effects on our tables are known not to have happened then.
    """

    action: Act[D]
    compensation: Act[D] | None = None
    reaches_outside: bool = False

    @property
    def name(self) -> str:
        """The name of its action's function."""
        return self.action.__name__

    def act(self, direction: Direction) -> Act[D]:
        """Answer what does it, or undoes it.

        Raises
        ------
        DefinitionChanged
            If it is to be undone and there is nothing any more that does.
        """
        if direction is Direction.ACTION:
            return self.action
        if self.compensation is None:
            raise DefinitionChanged(f"the step {self.name} has no compensation any more")
        return self.compensation


@dataclass(frozen=True, slots=True)
class Saga(Generic[D]):
    """A definition.

    Parameters
    ----------
    name
        What it is called; the attribute that holds it has the same name.
    data
        What its steps work on.
    access
        What its steps touch, all together.

    Raises
    ------
    DeclarationError
        If it has no steps or too many, two of one name, or one that claims what makes no difference.
    """

    name: str
    data: type[D]
    steps: tuple[Step[D], ...]
    access: Access

    def __post_init__(self) -> None:
        names = self.step_names
        if not 1 <= len(names) <= MAX_STEPS:
            raise DeclarationError(f"the saga {self.name} has {len(names)} steps, not 1 to {MAX_STEPS}")
        if wrong := [name for name in names if not name.isidentifier()]:
            raise DeclarationError(f"the saga {self.name} has the step {wrong[0]}: a step is a function with a name")
        if twice := [name for name in names if names.count(name) > 1]:
            raise DeclarationError(f"the saga {self.name} has two steps {twice[0]}: rename one")
        for step in self.steps:
            if step.reaches_outside and step.compensation is None:
                raise DeclarationError(
                    f"the saga {self.name}: {step.name} reaches outside and has no compensation,"
                    " so that it makes no difference: give it one or leave it out"
                )
        for act in (act for step in self.steps for act in (step.action, step.compensation) if act is not None):
            if flaw := flaw_of(act, NoneType, self.data):
                raise DeclarationError(f"the saga {self.name}: {flaw}")

    @property
    def step_names(self) -> list[str]:
        """The names of its steps."""
        return [step.name for step in self.steps]

    def read(self, row: SagaRow) -> D:
        """Answer the data of one of its sagas.

        Raises
        ------
        DefinitionChanged
            If that was started under another definition.
        """
        if row.step_names != self.step_names:
            was, now = ", ".join(row.step_names), ", ".join(self.step_names)
            raise DefinitionChanged(f"{row.saga} was started with the steps {was}, and what is deployed has {now}")
        try:
            return self.data.model_validate_json(row.data)
        except ValidationError as error:
            raise DefinitionChanged(f"{row.saga} cannot read its data: {failure_of(error).message}") from error

    def perform(self, row: SagaRow, data: D, call: StepCall) -> D | None:
        """Do or undo the step at which one of its sagas stands, and return the data of the steps after it.

        Raises
        ------
        WrongReturn
            If the step's function returned anything else.
        """
        step, direction = self.steps[int(row.position)], Direction(row.direction)
        changed = step.act(direction)(data, call)
        by = f"the saga {self.name}: the {direction.value} of its step {step.name}"
        return returned(changed, NoneType, self.data, by=by)

    def undone_after(self, position: int) -> int | None:
        """Answer the position of the next step to undo, at this position or before it; None if there is none."""
        return next((each for each in range(position, -1, -1) if self.steps[each].compensation is not None), None)


def saga(
    name: str,
    *,
    data: type[D],
    steps: Sequence[Step[D]],
    reads: Sequence[type[Row]] = (),
    writes: Sequence[type[Row]] = (),
    scans: Sequence[type[Row]] = (),
    publishes: Sequence[type[Event]] = (),
    uses: Sequence[type[Port]] = (),
) -> Saga[D]:
    """Declare a saga: `name = saga("name", data=…, steps=[Step(action, compensation), …], writes=[…])`.

    Parameters
    ----------
    data
        A pydantic model: it is stored as JSON, so old data must fit it for as long as sagas run.
    steps
        In the order in which they are done. Their names are the definition: a saga that runs is stuck when they
        changed under it.
    reads, writes, scans, publishes, uses
        What the steps touch: see `Access`. Nothing else is granted.
    """
    access = Access.of(reads=reads, writes=writes, scans=scans, publishes=publishes, uses=uses)
    return Saga(name, data, tuple(steps), access)


def start(definition: Saga[D], data: D, work: UnitOfWork, *, owner_id: str | None = None) -> str:
    """Collect a new saga and the request for its first step; answer its id.

    Parameters
    ----------
    owner_id
        Whose it is: callers who act for one owner see only theirs.

    Raises
    ------
    SagaDataTooLarge
        If its row could not hold the data.
    """
    at = timestamp(work.now())
    row = SagaRow(
        work.new_id(),
        saga=definition.name,
        steps=json.dumps(definition.step_names),
        data=written(data),
        owner_id=owner_id,
        direction=Direction.ACTION.value,
        position=0,
        created_at=at,
        updated_at=at,
    )
    row.become(Status.RUNNING)
    request(row, work)
    tell(row, LogEvent.SAGA_STARTED, work, Metric.SAGA_STARTED)
    return row.id


def request(row: SagaRow, work: UnitOfWork) -> None:
    """Collect the row as it stands now and the request for the step that it stands at."""
    work.save(row)
    work.publish(
        SagaStepRequested(
            saga_id=row.id,
            saga=row.saga,
            step=row.step_name,
            position=int(row.position),
            direction=Direction(row.direction),
        ),
        about=row,
    )


def ask_again(row: SagaRow, work: UnitOfWork) -> None:
    """Collect a new request for the step at which a saga stands: the last one may be lost."""
    row.updated_at = timestamp(work.now())
    request(row, work)
    tell(row, LogEvent.SAGA_RESUMED, work)


def go_on(definition: Saga[Any], row: SagaRow, work: UnitOfWork) -> None:
    """Collect that the step at which a saga stands is done, or undone, and what comes next."""
    row.note(Outcome.DONE, timestamp(work.now()))
    tell(row, LogEvent.SAGA_STEP_DONE, work)
    position = int(row.position)
    if row.direction == Direction.COMPENSATION:
        _undo(definition.undone_after(position - 1), row, work)
    elif position + 1 < len(definition.steps):
        row.position = position + 1
        row.become(Status.RUNNING)
        request(row, work)
    else:
        _finish(row, position + 1, Status.COMPLETED, work)


def turn_back(definition: Saga[Any], row: SagaRow, failure: Failure, work: UnitOfWork) -> None:
    """Collect that the action at which a saga stands failed for good, and the first thing to undo."""
    row.note(Outcome.FAILED, timestamp(work.now()), failure)
    tell(row, LogEvent.SAGA_COMPENSATING, work, failure=failure)
    row.failure = failure.to_json()
    position = int(row.position)
    _undo(definition.undone_after(position if definition.steps[position].reaches_outside else position - 1), row, work)


def tell(
    row: SagaRow, event: LogEvent, work: UnitOfWork, metric: Metric | None = None, failure: Failure | None = None
) -> None:
    """Log, and count, what becomes of a saga, once it is written."""
    facts = {"saga": row.saga, "saga_id": row.id}
    if metric is None:
        facts |= {"step": row.step_name, "direction": row.direction}

    def say() -> None:
        telemetry.log(event, failure=failure, **facts)
        if metric is not None:
            telemetry.count(metric)

    work.once_written(say)


def written(data: BaseModel) -> str:
    """Write a saga's data as its row holds it.

    Raises
    ------
    SagaDataTooLarge
        If the row could not.
    """
    text = data.model_dump_json()
    if (size := len(text.encode())) > MAX_DATA_BYTES:
        raise SagaDataTooLarge(
            f"{type(data).__name__} takes {size} bytes, and a saga has {MAX_DATA_BYTES}: keep the rest in a row"
        )
    return text


def _undo(position: int | None, row: SagaRow, work: UnitOfWork) -> None:
    row.direction = Direction.COMPENSATION.value
    if position is None:
        _finish(row, -1, Status.COMPENSATED, work)
        return
    row.position = position
    row.become(Status.COMPENSATING)
    request(row, work)


def _finish(row: SagaRow, position: int, status: Status, work: UnitOfWork) -> None:
    row.position = position
    row.become(status)
    row.expires_at = work.now() + timedelta(seconds=work.runtime.timings.saga_retention)
    work.save(row)
    event, metric = {
        Status.COMPLETED: (LogEvent.SAGA_COMPLETED, Metric.SAGA_COMPLETED),
        Status.COMPENSATED: (LogEvent.SAGA_COMPENSATED, Metric.SAGA_COMPENSATED),
    }[status]
    tell(row, event, work, metric)
