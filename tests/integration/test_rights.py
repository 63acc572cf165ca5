"""Rights: the machinery's own code takes every action that it is granted, and AWS would deny what it is not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from app.owners import Owner
from mailroom.deployment import Deployment
from mailroom.idempotency import NEEDS, NEEDS_TO_FORGET, Idempotency, IdempotencyRow
from mailroom.job import Job, JobContext, JobEdge, job
from mailroom.jobs.cleanup import cleanup
from mailroom.jobs.metrics_export import metrics_export
from mailroom.jobs.outbox_relay import outbox_relay
from mailroom.jobs.saga_orchestrator import saga_orchestrator
from mailroom.lease import NEEDS as LEASE_NEEDS
from mailroom.lease import LeaseRow
from mailroom.needs import Access
from mailroom.outbox.event import Envelope
from mailroom.outbox.relay import Relay
from mailroom.publishers.publisher import SENT, Outcome
from mailroom.row import Row, RowStays
from mailroom.runtime import Runtime
from mailroom.saga import STARTING
from mailroom.saga_row import SagaRow
from mailroom.schedule import Every
from mailroom.testing import FakePublisher, LambdaContext, ManualClock, permanent, transient
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died, died, failing, timed_out, writes
from tests.rights import Right, Rights, granted

from .outbox.conftest import SHARD, Outbox, outbox  # noqa: F401 - a fixture
from .sagas.conftest import Line, line  # noqa: F401 - a fixture

LEASE = {("UpdateItem", "leases")}


def rights_of(declaration: Job, runtime: Runtime) -> set[Right]:
    return granted(declaration.access, runtime, LEASE_NEEDS)


def run(declaration: Job, runtime: Runtime) -> None:
    JobEdge(declaration, runtime).run(LambdaContext(55_000))


def expired(clock: ManualClock) -> None:
    """Add a record whose time has passed."""
    IdempotencyRow(f"old-{clock.now()}", status="COMPLETED", in_progress_until=0, expires_at=clock.now()).save()
    clock.advance(2)


def test_the_clean_up_takes_all_that_it_may__and_no_more(rights: Rights, runtime: Runtime, clock: ManualClock) -> None:
    expired(clock)
    run(cleanup, runtime)
    unused = {("DeleteItem", "outbox"), ("DeleteItem", "sagas")}  # one code deletes from all three
    assert rights.used["cleanup"] == rights_of(cleanup, runtime) - unused


def test_the_metrics_take_all_that_they_may(rights: Rights, runtime: Runtime) -> None:
    runtime.provide(Deployment, Deployment("test"))
    run(metrics_export, runtime)
    assert rights.used["metrics_export"] == rights_of(metrics_export, runtime)


def test_a_relay_takes_all_that_it_may(rights: Rights, runtime: Runtime, outbox: Outbox, clock: ManualClock) -> None:
    verdicts: list[Outcome] = [permanent(), transient(), SENT]

    def answer(_: Envelope) -> Outcome:
        return verdicts.pop(0) if len(verdicts) > 1 else SENT

    relay = Relay(runtime, FakePublisher(answer))
    for _ in range(3):
        outbox.add()
    with failing(writes("PutRequest"), died), pytest.raises(Died):
        relay.drain(SHARD)
    clock.advance(runtime.timings.lease + 60)
    relay.drain(SHARD)
    assert rights.used["relay"] == granted(Access(uses=(Relay,)), runtime)


def test_the_sweep_may_what_a_relay_may(runtime: Runtime) -> None:
    assert rights_of(outbox_relay, runtime) == granted(Access(uses=(Relay,)), runtime)


def test_the_orchestrator_takes_all_that_it_may__but_for_looks_at_sagas_that_others_write(
    rights: Rights, runtime: Runtime, line: Line
) -> None:
    line.start()
    line.clock.advance(runtime.timings.saga_stall + 1)
    run(saga_orchestrator, runtime)
    assert rights.used["saga_orchestrator"] == rights_of(saga_orchestrator, runtime) - {("ConditionCheckItem", "sagas")}


@job(schedule=Every(hours=1), writes=[Owner])
def counting(work: JobContext) -> None:
    work.update(Owner("owner-1"), [Owner.repo_count.add(1)])


def test_a_lease_is_taken_renewed_kept_in_a_commit_and_given_back_by_updates_alone(
    rights: Rights, runtime: Runtime
) -> None:
    run(counting, runtime)
    assert rights.used["counting"] == {("UpdateItem", "owners"), *LEASE}
    assert {(action.removeprefix("dynamodb:"), "leases") for action in LEASE_NEEDS.actions} == LEASE


@pytest.mark.parametrize(
    ("failing_as", "taken"), [(None, NEEDS.actions + NEEDS_TO_FORGET.actions), ("consumer", NEEDS.actions)]
)
def test_a_record_takes_all_that_it_may(runtime: Runtime, failing_as: str | None, taken: tuple[str, ...]) -> None:
    """Of a kept failure no record is deleted; of none nothing is left."""
    records = Idempotency(runtime, prefix="test", life=3600, failing_as=failing_as)

    def fail() -> None:
        raise ValueError("no")

    with Rights().attached() as rights:
        with pytest.raises(ValueError, match="no"):
            rights.used_by(partial(records.run, key="1", act=fail, remaining_ms=1000))
        commit = UnitOfWork(runtime, Access()).commit
        with failing("TransactWriteItems", timed_out, after=True, times=100):
            used = rights.used_by(partial(records.run, key="2", act=commit, remaining_ms=1000))
    assert used == {(action.removeprefix("dynamodb:"), "idempotency") for action in taken}


def test_what_is_taken_past_the_grants_is_told(runtime: Runtime, rights: Rights) -> None:
    run(replace(cleanup, access=Access()), runtime)
    told = {(who, right) for who, _, right in rights.denied}
    rights.denied.clear()
    assert told == {
        ("cleanup", ("Scan", "idempotency")),
        ("cleanup", ("Scan", "sagas")),
        ("cleanup", ("Query", "outbox")),
    }


@pytest.mark.parametrize("row", [SagaRow("saga-1"), LeaseRow("lease-1"), Owner("owner-1")], ids=str)
def test_a_row_that_stays_is_not_deleted__whoever_may_write_it(runtime: Runtime, row: Row) -> None:
    work = UnitOfWork(runtime, STARTING | Access(writes=(LeaseRow, Owner)))
    with pytest.raises(RowStays, match="not deletable"):
        work.delete(row)
