"""Sagas over HTTP: how what was begun goes on."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel

from mailroom.failures import Failure
from mailroom.http.call import Call
from mailroom.http.problem import ProblemKind
from mailroom.http.reply import Reply
from mailroom.http.route import Success
from mailroom.http.routes import Routes
from mailroom.needs import Access
from mailroom.saga_row import SagaRow, Status, StepState


class NoSuchSaga(Exception):
    """There is no saga with this id."""

    def __init__(self, saga_id: str) -> None:
        super().__init__(f"there is no saga {saga_id}")


routes = Routes(
    access=Access(reads=(SagaRow,)),
    problems={NoSuchSaga: ProblemKind(404, "no-such-saga", "There is no such saga")},
)


class StepView(BaseModel):
    """One step of a saga."""

    name: str
    state: StepState


class SagaView(BaseModel):
    """A saga as callers see it; `failure` is why it does not come to what was asked for."""

    id: str
    saga: str
    status: Status
    steps: list[StepView]
    failure: str | None
    created_at: str
    updated_at: str

    @classmethod
    def of(cls, row: SagaRow) -> Self:
        """Show a saga."""
        return cls(
            id=row.id,
            saga=row.saga,
            status=Status(row.status),
            steps=[StepView(name=name, state=state) for name, state in row.states().items()],
            failure=_shown(row.why_it_compensates),
            created_at=row.created_at,
            updated_at=row.updated_at,
        )


@routes.get("/api/v1/sagas/{saga_id}", success=Success(200, SagaView), raises=[NoSuchSaga])
def get_saga(call: Call, saga_id: str) -> Reply:
    """Show how a saga goes on; its row is kept for 90 days after its end."""
    row = call.work.get(SagaRow, saga_id)
    if row is None or not call.caller.may_act_for(row.owner_id or ""):
        raise NoSuchSaga(saga_id)
    return Reply(200, SagaView.of(row))


def _shown(failure: Failure | None) -> str | None:
    """Answer what callers are told: the application's own words, and nothing of what others say of us."""
    if failure is None:
        return None
    return failure.message if failure.own else "a step could not be done"
