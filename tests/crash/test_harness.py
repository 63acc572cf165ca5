"""The harness itself: it is true to AWS where moto is not, and it finds what it is there to find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pynamodb.exceptions import PutError

from app.owners import Owner
from mailroom import clients, idempotency, transaction
from mailroom.clients import observed
from mailroom.dead_letters.letter import Fate, Result
from mailroom.dead_letters.queue import DeadMessage, Look
from mailroom.dead_letters.taking import Act, Taker
from mailroom.idempotency import Idempotency, IdempotencyRow, Outcome, Taken
from mailroom.outbox.turn import Turn
from mailroom.outbox.walk import Walk
from mailroom.unit_of_work import UnitOfWork
from tests.faults import Died

from .aws import Aws, TransactionTokens
from .faults import Fault, Strikes
from .harness import Harness, Scenario, Tally
from .ledger import Finding, Flaw
from .partial_answers import PartialRefusal
from .scenarios import Consume, DrainToMemory, Post, RedriveToConsumer, RetryDieRedrive
from .world import World

TOKEN = "0123456789abcdef"


@pytest.fixture
def world(aws: Aws) -> World:
    return World(aws, seed=1)


@pytest.fixture
def trial(aws: Aws) -> Harness:
    """A harness whose runs the closing line leaves out: they are meant to go wrong."""
    return Harness(aws, Tally())


# AWS


def add_one(token: str = TOKEN, row: str = "owner-1") -> None:
    clients.dynamodb().transact_write_items(
        ClientRequestToken=token,
        TransactItems=[
            {
                "Update": {
                    "TableName": "owners-table",
                    "Key": {"id": {"S": row}},
                    "UpdateExpression": "ADD repo_count :one",
                    "ExpressionAttributeValues": {":one": {"N": "1"}},
                }
            }
        ],
    )


def added(aws: Aws) -> dict[str, int]:
    return {row["id"]: int(row["repo_count"]) for row in aws.items("owners")}


def test_a_transaction_that_is_sent_again_takes_effect_once(aws: Aws, world: World) -> None:
    add_one()
    add_one()
    add_one("another-token")
    assert added(aws) == {"owner-1": 2}


def test_a_token_of_another_transaction_is_refused(aws: Aws, world: World) -> None:
    add_one()
    with pytest.raises(clients.dynamodb().exceptions.IdempotentParameterMismatchException):
        add_one(row="owner-2")
    assert added(aws) == {"owner-1": 1}


def test_a_token_is_forgotten__after_ten_minutes(aws: Aws, world: World) -> None:
    add_one()
    world.clock.advance(TransactionTokens.life + 1)
    add_one()
    assert added(aws) == {"owner-1": 2}


def test_a_transaction_whose_answer_was_lost_took_effect__and_its_repetition_is_told_so(aws: Aws, world: World) -> None:
    with observed(Strikes({1: Fault.TIMES_OUT}, lambda: None)):
        with pytest.raises(Exception, match="timeout"):
            add_one()
        add_one()
    assert added(aws) == {"owner-1": 1}


def test_messages_hide_by_the_clock_of_the_run(aws: Aws, world: World) -> None:
    aws.send("hello")
    assert len(aws.receive()) == 1
    assert aws.receive() == []
    world.clock.advance(181)
    assert len(aws.receive()) == 1


def test_no_run_sees_what_the_one_before_left(aws: Aws, world: World) -> None:
    add_one()
    aws.send("hello")
    World(aws, seed=2)
    assert (added(aws), aws.depth("counting")) == ({}, 0)


# Faults


@pytest.mark.parametrize(
    ("fault", "before", "effects"),
    [
        (Fault.DIES_BEFORE, Died, 0),
        (Fault.DIES_AFTER, Died, 1),
        (Fault.TIMES_OUT, Exception, 1),
        (Fault.REFUSED, Exception, 0),
        (Fault.THROTTLED, Exception, 0),
        (Fault.OUTAGE, Exception, 0),
    ],
)
def test_a_fault_strikes_before_or_after_the_effect(
    aws: Aws, world: World, fault: Fault, before: type[BaseException], effects: int
) -> None:
    with observed(Strikes({1: fault}, lambda: None)), pytest.raises(before):
        add_one()
    assert sum(added(aws).values()) == effects


def test_a_dead_process_makes_no_call_any_more(aws: Aws, world: World) -> None:
    strikes = Strikes({1: Fault.DIES_BEFORE}, lambda: None)
    with observed(strikes):
        for _ in range(2):
            with pytest.raises(Died):
                add_one()
        strikes.next_try()
        add_one()
    assert added(aws) == {"owner-1": 1}


@pytest.mark.parametrize(("fault", "refusals"), [(Fault.REFUSED, 1), (Fault.THROTTLED, 2), (Fault.OUTAGE, 5)])
def test_a_refusal_lasts_as_long_as_it_says(aws: Aws, world: World, fault: Fault, refusals: int) -> None:
    refused = 0
    with observed(Strikes({1: fault}, lambda: None)):
        for attempt in range(5):
            try:
                add_one(f"token-{attempt}")
            except Exception:
                refused += 1
    assert refused == refusals


def test_a_conditional_write_whose_answer_was_lost_meets_itself(aws: Aws, world: World) -> None:
    owner = Owner("owner-1")
    with observed(Strikes({1: Fault.ANSWER_LOST}, lambda: None)), pytest.raises(PutError, match="ConditionalCheck"):
        owner.save(condition=Owner.id.does_not_exist())
    assert [row["id"] for row in aws.items("owners")] == ["owner-1"]


def test_an_entry_that_is_refused_by_itself_is_not_sent__and_the_others_are(
    aws: Aws, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aws, "between", Strikes({1: PartialRefusal("Busy")}, lambda: None).between)
    entries: Any = [{"Id": name, "MessageBody": name} for name in ("first", "second")]
    answer = clients.sqs().send_message_batch(QueueUrl=aws.queues["counting"], Entries=entries)
    assert [(each["Id"], each["Code"]) for each in answer["Failed"]] == [("first", "Busy")]
    assert aws.bodies("counting") == ["second"]


def test_a_call_whose_only_entry_is_refused_counts_all_the_same(
    aws: Aws, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    strikes = Strikes({1: PartialRefusal("InternalFailure")}, lambda: None)
    monkeypatch.setattr(aws, "between", strikes.between)
    answer = clients.events().put_events(Entries=[{"Source": "test", "DetailType": "test", "Detail": "{}"}])
    assert (answer["FailedEntryCount"], len(strikes.calls), list(strikes.struck)) == (1, 1, [1])


# What it is there to find


def completes_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    def commit(self: UnitOfWork, response: Any = None) -> None:
        taken = idempotency.taken()
        transaction.write(self._operations, self.runtime)
        if taken:
            transaction.write([taken.completion(response)], self.runtime)
            taken.completed = True

    patch.setattr(UnitOfWork, "commit", commit)


def completes_what_another_took_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Taken, "is_ours", lambda self: IdempotencyRow.id.exists())


def keeps_no_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Idempotency, "run", lambda self, *, act, **_: Outcome(act(), replayed=False))


def deletes_before_the_put_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    def mark(self: Turn, done: Any) -> bool:
        removed = self._remove([event.id for event in done])
        self._table.mark_sent(self._shard, done, self._now())
        return removed

    patch.setattr(Turn, "_mark", mark)


def releases_clean_whatever_happened(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "release", lambda self: self._held.release(clean=True))


def trusts_an_unclean_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Walk, "resume", lambda self, held: None)


def brings_back_rows_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    class Unconditional:
        def __getattr__(self, operation: str) -> Any:
            return getattr(clients.dynamodb(), operation)

        def update_item(self, *, ConditionExpression: str, **rest: Any) -> Any:
            return clients.dynamodb().update_item(**rest)

    patch.setattr("mailroom.outbox.table.clients", SimpleNamespace(dynamodb=Unconditional))


def deletes_a_dead_message_before_it_is_sent_again(patch: pytest.MonkeyPatch) -> None:
    def take_one(self: Taker, look: Look, message: DeadMessage, act: Act) -> Result:
        look.take(message)
        return Result(message.id, self._source, Fate.DONE, act(message))

    patch.setattr(Taker, "_take_one", take_one)


def does_not_know_its_own_take(patch: pytest.MonkeyPatch) -> None:
    def still_running(_: Any) -> Any:
        raise idempotency.StillRunning("somebody is at work", 1)

    patch.setattr(idempotency, "_before_our_take", still_running)


@pytest.mark.parametrize(
    ("broken", "scenario", "faults", "flaw"),
    [
        (does_not_know_its_own_take, Post, [Fault.ANSWER_LOST], Flaw.STUCK),
        (completes_after_the_commit, Post, list(Fault), Flaw.DUPLICATED),
        (completes_what_another_took_over, Post, [Fault.STALLS], Flaw.DUPLICATED),
        (keeps_no_records, Consume, list(Fault), Flaw.DUPLICATED),
        (deletes_before_the_put_is_confirmed, DrainToMemory, list(Fault), Flaw.LOST),
        (releases_clean_whatever_happened, DrainToMemory, list(Fault), Flaw.DUPLICATED),
        (trusts_an_unclean_lease, DrainToMemory, list(Fault), Flaw.DUPLICATED),
        (brings_back_rows_that_are_gone, RetryDieRedrive, [Fault.STALLS], Flaw.STUCK),
        (deletes_a_dead_message_before_it_is_sent_again, RedriveToConsumer, [Fault.DIES_BEFORE], Flaw.LOST),
    ],
)
def test_code_that_is_broken_is_found_out(
    trial: Harness,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    scenario: type[Scenario],
    faults: list[Fault],
    flaw: Flaw,
) -> None:
    broken(monkeypatch)
    found = (finding.flaw for run in trial.every_call(scenario, faults) for finding in run.findings)
    assert flaw in found


def test_code_that_survives_a_death_is_found_out(trial: Harness) -> None:
    class Swallows(Post):
        def step(self, world: World) -> bool:
            try:
                return super().step(world)
            except BaseException:
                return False

    with pytest.raises(AssertionError, match="caught the death"):
        trial.run(Swallows, {1: Fault.DIES_BEFORE})


# What it says


class Pointless(Scenario):
    """A scenario that never comes to an end."""

    tries = 3

    def step(self, world: World) -> bool:
        add_one("pointless")
        return False

    def judge(self, world: World) -> Iterator[Finding]:
        yield Finding(Flaw.LOST, "the point of it")


def test_a_report_names_scenario_call_fault_and_what_the_ledger_says(trial: Harness) -> None:
    report = trial.run(Pointless, {2: Fault.REFUSED}).report()
    assert report.startswith("Pointless, call 2 (TransactWriteItems) refused once: STUCK: still not done after 3 tries")
    assert report.endswith("LOST: the point of it")


def test_the_closing_line_counts_runs_and_each_way_in_which_one_went_wrong(aws: Aws) -> None:
    tally = Tally()
    harness = Harness(aws, tally)
    harness.run(Post, {})
    harness.run(Pointless, {})
    assert tally.line() == "2 runs, 1 lost, 0 duplicated, 1 stuck"


def test_a_run_is_repeatable(trial: Harness) -> None:
    first, second = (trial.run(RetryDieRedrive, {3: Fault.DIES_AFTER}) for _ in range(2))
    assert [call.operation for call in first.calls] == [call.operation for call in second.calls]
