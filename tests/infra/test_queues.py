"""A queue takes what its own source sends, and keeps it as long as the runbook says."""

from __future__ import annotations

from typing import Any

import pytest

from infra.application import Application
from mailroom.deployment import DEAD, UNDELIVERED
from mailroom.timings import DAY
from tests.infra.assembly import Assembly, id_in, listed
from tests.infra.conftest import Synth

CONSUMERS = {each.name for each in Application.discover().consumers}


@pytest.fixture(params=["local", "prod"])
def assembly(request: pytest.FixtureRequest, synth: Synth) -> Assembly:
    return synth(request.param)


def senders(assembly: Assembly, queue: str) -> list[tuple[Any, Any]]:
    """Return whom a queue's policies let in, each with its condition."""
    policies = [each["Properties"] for each in assembly.of_type("SQS::QueuePolicy").values()]
    allowed = [
        each
        for policy in policies
        if queue in map(id_in, policy["Queues"])
        for each in policy["PolicyDocument"]["Statement"]
        if each["Effect"] == "Allow"
    ]
    for each in allowed:
        assert set(listed(each["Action"])) <= {"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"}
        assert [id_in(resource) for resource in listed(each["Resource"])] == [queue]
    return [(each["Principal"], each.get("Condition")) for each in allowed]


def rules_into(assembly: Assembly, queue: str) -> list[str]:
    """Return the rules that send to a queue, or that leave there what they could not send."""
    return [
        name
        for name, rule in assembly.of_type("Events::Rule").items()
        for target in rule["Properties"]["Targets"]
        if queue in (id_in(target["Arn"]), id_in(target["DeadLetterConfig"]["Arn"]))
    ]


def test_a_queues_own_rule_may_send_to_it__and_no_other_and_no_service_but_eventbridge(assembly: Assembly) -> None:
    for queue in assembly.of_type("SQS::Queue"):
        assert senders(assembly, queue) == [
            (
                {"Service": "events.amazonaws.com"},
                {"ArnEquals": {"aws:SourceArn": f"${{{rule}.Arn}}"}},
            )
            for rule in rules_into(assembly, queue)
        ]


def test_every_consumer_is_fed_by_one_rule__and_every_rule_leaves_its_own_behind(assembly: Assembly) -> None:
    fed = [name for name in CONSUMERS if f"{name}{UNDELIVERED}" in assembly.deployment["queues"]]
    assert fed
    for name in fed:
        (rule,) = rules_into(assembly, assembly.queue(name))
        assert rules_into(assembly, assembly.queue(f"{name}{UNDELIVERED}")) == [rule]


def test_no_queue_may_leave_its_dead_letters_in_a_consumers_queue__where_they_would_pass_for_events(
    assembly: Assembly,
) -> None:
    for name in CONSUMERS:
        properties = assembly.properties(assembly.queue(name))
        assert properties["RedriveAllowPolicy"] == {"redrivePermission": "denyAll"}


def test_a_dead_letter_queue_takes_the_dead_letters_of_one_queue(assembly: Assembly) -> None:
    sources = [each for each in assembly.of_type("SQS::Queue") if "RedrivePolicy" in assembly.properties(each)]
    assert sorted(map(assembly.dead_letters_of, sources)) == sorted(
        assembly.queue(f"{name}{DEAD}") for name in CONSUMERS
    )


def test_a_paused_consumer_loses_nothing_for_five_days__and_the_dead_stay_for_fourteen(assembly: Assembly) -> None:
    kept = {
        name: assembly.properties(assembly.queue(name))["MessageRetentionPeriod"]
        for name in assembly.deployment["queues"]
    }
    assert kept == {name: (5 if name in CONSUMERS else 14) * DAY for name in kept}


def test_a_queue_for_dead_letters_moves_nothing_on__however_often_operators_look_into_it(assembly: Assembly) -> None:
    queues = assembly.of_type("SQS::Queue").values()
    dead = {
        id_in(each["Properties"]["RedrivePolicy"]["deadLetterTargetArn"])
        for each in queues
        if "RedrivePolicy" in each["Properties"]
    }
    dead |= {
        id_in(target["DeadLetterConfig"]["Arn"])
        for rule in assembly.of_type("Events::Rule").values()
        for target in rule["Properties"]["Targets"]
    }
    assert dead
    for name in dead:
        assert "RedrivePolicy" not in assembly.of_type("SQS::Queue")[name]["Properties"]
