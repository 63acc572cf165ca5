"""A function may do what its code declares, action by action, and nothing else."""

from __future__ import annotations

import pytest

from app.consumers.notifications import notifications
from infra.application import Application
from infra.grants import LEASE_ACTIONS, PUBLISH_ACTIONS, RECORD_ACTIONS
from mailroom.deployment import names_in, service_stack
from mailroom.needs import READ_ACTIONS, SCAN_ACTIONS, WRITE_ACTIONS
from mailroom.outbox.table import OutboxRow
from mailroom.saga_consumer import SAGAS
from tests.infra.assembly import Assembly, listed
from tests.infra.conftest import Synth

FEEDING = {
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ReceiveMessage",
}
WITHOUT_RESOURCES = {
    "dynamodb:ListStreams",
    "events:ListRuleNamesByTarget",
    "lambda:ListEventSourceMappings",
    "ses:GetIdentityVerificationAttributes",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}
HERE = "arn:${AWS::Partition}:{service}:eu-central-1:111122223333:{resource}"


def tables(grants: dict[str, set[str]]) -> dict[str, set[str]]:
    prefix = "table/"
    return {name.removeprefix(prefix): each for name, each in grants.items() if name.startswith(prefix)}


def declared_tables(name: str) -> dict[str, set[str]]:
    application = Application.discover()
    declaration = next(each for each in (*application.consumers, *application.jobs) if each.name == name)
    found: dict[str, set[str]] = {}
    for models, actions in (
        (declaration.access.reads, READ_ACTIONS),
        (declaration.access.writes, READ_ACTIONS + WRITE_ACTIONS),
        (declaration.access.scans, SCAN_ACTIONS),
        ((OutboxRow,) if declaration.access.publishes else (), PUBLISH_ACTIONS),
    ):
        for model in models:
            found.setdefault(model.Meta.short_name, set()).update(actions)
    return found


def test_a_consumer_may_do_what_it_declares__and_keep_its_records(prod: Assembly) -> None:
    grants = prod.grants(prod.function(notifications.name))
    assert tables(grants) == {"owners": set(READ_ACTIONS), "idempotency": set(RECORD_ACTIONS)}
    assert "dynamodb:PutItem" not in grants["table/owners"]


def test_a_consumer_may_read_its_own_queue_and_send_to_none(prod: Assembly) -> None:
    grants = prod.grants(prod.function(notifications.name))
    queues = {name: each for name, each in grants.items() if any(one.startswith("sqs:") for one in each)}
    assert queues == {f"${{{prod.queue(notifications.name)}.Arn}}": FEEDING}


def test_a_port_brings_its_needs__to_those_who_use_it_alone(prod: Assembly) -> None:
    senders = [
        name
        for name in prod.deployment["functions"]
        if any("ses:SendEmail" in each for each in prod.grants(prod.function(name)).values())
    ]
    assert senders == [notifications.name]


def test_the_consumer_of_sagas_may_do_what_their_steps_do__and_ask_for_the_next_one(prod: Assembly) -> None:
    grants = tables(prod.grants(prod.function(SAGAS)))
    assert grants == {**declared_tables(SAGAS), "idempotency": set(RECORD_ACTIONS)}
    assert {"repos", "owners", "sagas"} <= set(grants)
    assert grants["outbox"] == set(PUBLISH_ACTIONS)


@pytest.mark.parametrize("job", [each.name for each in Application.discover().jobs])
def test_a_job_may_do_what_it_declares__and_hold_its_lease(prod: Assembly, job: str) -> None:
    expected = declared_tables(job)
    expected.setdefault("leases", set()).update(LEASE_ACTIONS)
    assert tables(prod.grants(prod.function(job))) == expected


def test_the_relay_may_deliver__from_the_outbox_to_the_bus(prod: Assembly) -> None:
    grants = prod.grants(prod.function("relay"))
    assert tables(grants) == {"outbox": {*READ_ACTIONS, *WRITE_ACTIONS}, "leases": set(LEASE_ACTIONS)}
    bus = prod.deployment["buses"]["events"]
    publishing = {name for name, each in grants.items() if "events:PutEvents" in each}
    assert publishing == {f"arn:${{AWS::Partition}}:events:eu-central-1:111122223333:event-bus/{bus}"}


def test_the_api_may_add_events_but_not_read_or_publish_them(prod: Assembly) -> None:
    grants = prod.grants(prod.function("api"))
    assert grants["table/outbox"] == set(PUBLISH_ACTIONS)
    assert not any("events:PutEvents" in each for each in grants.values())


def test_operators_may_move_what_died__and_look_at_the_rest(prod: Assembly) -> None:
    grants = prod.grants(prod.function("operations"))
    assert tables(grants) == {
        "outbox": {*READ_ACTIONS, *WRITE_ACTIONS},
        "idempotency": {*READ_ACTIONS, *RECORD_ACTIONS},
        "leases": set(READ_ACTIONS),
    }
    assert {name: each for name, each in grants.items() if "mailroom-prod-service" in name} == {
        here("sqs", "mailroom-prod-service*"): {
            "sqs:ChangeMessageVisibility",
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
            "sqs:ReceiveMessage",
            "sqs:SendMessage",
        },
        here("cloudformation", "stack/mailroom-prod-service/*"): {"cloudformation:DescribeStacks"},
        here("lambda", "function:mailroom-prod-service*"): {"lambda:GetFunctionConfiguration"},
        here("events", "rule/mailroom-prod-service*"): {"events:DescribeRule"},
    }


def test_the_export_may_look_into_queues__and_take_nothing_out(prod: Assembly) -> None:
    grants = prod.grants(prod.function("metrics_export"))
    queues = {name: each for name, each in grants.items() if any(one.startswith("sqs:") for one in each)}
    dead = f"${{{prod.queue('metrics_export-dead')}.Arn}}"
    assert queues.pop(dead) == {"sqs:GetQueueAttributes", "sqs:GetQueueUrl", "sqs:SendMessage"}
    assert queues == {here("sqs", "mailroom-prod-service*"): {"sqs:GetQueueAttributes"}}


@pytest.mark.parametrize("stage", ["prod", "production", "a" * 20])
def test_a_pattern_of_names_is_short_enough_for_names_that_cloudformation_shortens(stage: str) -> None:
    pattern = names_in(stage).removesuffix("*")
    assert len(pattern) <= 24
    assert service_stack(stage).startswith(pattern)
    assert not service_stack(f"{stage[:9]}-x").startswith(pattern)


def here(service: str, resource: str) -> str:
    return HERE.replace("{service}", service).replace("{resource}", resource)


def test_nothing_grants_a_pattern_of_actions(prod: Assembly) -> None:
    for name in prod.deployment["functions"]:
        for actions in prod.grants(prod.function(name)).values():
            assert not [each for each in actions if "*" in each]


def test_no_grant_covers_every_resource__where_actions_know_resources(prod: Assembly) -> None:
    for name in prod.deployment["functions"]:
        assert prod.grants(prod.function(name)).get("*", set()) <= WITHOUT_RESOURCES


def test_every_function_has_a_role_of_its_own__without_managed_policies(prod: Assembly) -> None:
    roles = [each["Properties"]["Role"] for each in prod.of_type("Lambda::Function").values()]
    assert len(set(roles)) == len(roles)
    assert not any("ManagedPolicyArns" in each["Properties"] for each in prod.of_type("IAM::Role").values())


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_queues_and_topics_refuse_plain_http__on_aws(synth: Synth, name: str) -> None:
    assembly = synth(name)
    for policy in (assembly.of_type("SQS::QueuePolicy") | assembly.of_type("SNS::TopicPolicy")).values():
        statements = policy["Properties"]["PolicyDocument"]["Statement"]
        refused = [each for each in statements if each["Effect"] == "Deny"]
        assert [each["Condition"] for each in refused] == [{"Bool": {"aws:SecureTransport": "false"}}]
        assert all(listed(each["Resource"]) for each in refused)
    assert len(assembly.of_type("SQS::QueuePolicy")) == len(assembly.of_type("SQS::Queue"))
