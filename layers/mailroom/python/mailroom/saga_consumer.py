"""The consumer that runs sagas: it does the step that a request asks for, and commits the transition with it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any

from mailroom import telemetry
from mailroom.clock import timestamp
from mailroom.consumer import Consumer
from mailroom.declarations import DeclarationError
from mailroom.failures import Failure, failure_of
from mailroom.outbox.event import Event
from mailroom.saga import (
    STARTING,
    DefinitionChanged,
    Saga,
    SagaStepRequested,
    StepCall,
    go_on,
    tell,
    turn_back,
    written,
)
from mailroom.saga_row import UNFINISHED, Direction, Outcome, SagaRow, Trouble
from mailroom.telemetry import LogEvent
from mailroom.timings import SAGA_PATIENCE
from mailroom.unit_of_work import UnitOfWork

SAGAS = "sagas"
"""The consumer's name, and so its queue's and its dead letters'."""


def saga_consumer(module: str, sagas: Iterable[Saga[Any]], **options: Any) -> Consumer:
    """Declare the consumer that runs these sagas: `sagas = saga_consumer(__name__, discover("app.sagas", Saga))`.

    Parameters
    ----------
    module
        The module that holds it, from which the deployed function takes it.
    options
        `timeout`, `memory`, `batch_size`, `max_concurrency`: see `Consumer`.

    Raises
    ------
    DeclarationError
        If there is no saga.
    """
    definitions = {each.name: each for each in sagas}
    if not definitions:
        raise DeclarationError(f"{module}: there is no saga to run")
    conductor = Conductor(definitions)
    return Consumer(
        name=SAGAS,
        module=module,
        function=conductor.run,
        access=reduce(or_, (each.access for each in definitions.values()), STARTING),
        on=(SagaStepRequested,),
        gives_up=conductor.give_up,
        **{"patience": SAGA_PATIENCE, **options},
    )


class Conductor:
    """Takes sagas from step to step.

    The row's version makes each transition happen once: a request that comes twice, late, or beside another one
    for the same step finds a row that has moved on, before its step or at its commit.
    """

    def __init__(self, definitions: dict[str, Saga[Any]]) -> None:
        self._definitions = definitions

    def run(self, event: Event, work: UnitOfWork) -> None:
        """Do what a request asks for, or undo it, and collect the transition."""
        row = _wanted(event, work)
        if row is None:
            return
        definition = self._definition_of(row)
        data = definition.read(row)
        changed = definition.perform(row, data, StepCall(work, row.id, row.token, row.why_it_compensates))
        if changed is not None:
            row.data = written(changed)
        go_on(definition, row, work)

    def give_up(self, event: Event, failure: Failure, work: UnitOfWork) -> bool:
        """Turn a saga back whose action failed for the last time; one that cannot be turned back is stuck."""
        row = _wanted(event, work)
        if row is None:
            return True
        trouble = self._trouble_with(row)
        if trouble is not None or failure.type == DefinitionChanged.__name__:
            return _stick(row, Trouble.VERSION, trouble or failure, work)
        if row.direction == Direction.COMPENSATION:
            return _stick(row, Trouble.COMPENSATION, failure, work)
        turn_back(self._definition_of(row), row, failure, work)
        return True

    def _definition_of(self, row: SagaRow) -> Saga[Any]:
        if row.saga not in self._definitions:
            raise DefinitionChanged(f"what is deployed has no saga {row.saga}")
        return self._definitions[row.saga]

    def _trouble_with(self, row: SagaRow) -> Failure | None:
        try:
            definition = self._definition_of(row)
            definition.read(row)
            definition.steps[int(row.position)].act(Direction(row.direction))
        except DefinitionChanged as error:
            return failure_of(error)
        return None


def _wanted(event: Event, work: UnitOfWork) -> SagaRow | None:
    """Answer the saga, if it stands where the request says: else the request is an old one, or a duplicate."""
    assert isinstance(event, SagaStepRequested)  # noqa: S101 - narrows the type: the consumer waits for nothing else
    row = work.get(SagaRow, event.saga_id)
    if row and row.status in UNFINISHED and (row.position, row.direction) == (event.position, event.direction):
        return row
    telemetry.log(
        LogEvent.SAGA_REQUEST_IGNORED,
        saga=event.saga,
        saga_id=event.saga_id,
        step=event.step,
        direction=event.direction.value,
        status=row.status if row else None,
    )
    return None


def _stick(row: SagaRow, trouble: Trouble, failure: Failure, work: UnitOfWork) -> bool:
    known = (row.trouble, row.trouble_failure, row.trouble_request)
    if known != (trouble.value, failure.to_json(), work.cause_id):  # else it was said at an earlier delivery
        row.note(Outcome.STUCK, timestamp(work.now()), failure)
        row.stick(trouble, failure, work.cause_id)
        work.save(row)
        tell(row, LogEvent.SAGA_STUCK, work, failure=failure)
    return False
