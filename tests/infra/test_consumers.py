"""What stands around a consumer comes from what it declares and from the timings."""

from __future__ import annotations

import pytest

from app.consumers.notifications import notifications
from app.consumers.webhook_deliveries import webhook_deliveries
from app.consumers.webhooks import webhooks
from infra.application import Application
from mailroom.consumer import PARTS_QUEUE_VARIABLE, QUEUE_VARIABLE
from mailroom.sources.source import MAX_RECEIVES
from mailroom.timings import MAX_QUEUE_RETENTION, Timings
from tests.infra.assembly import Assembly, id_in

CONSUMERS = [each.name for each in Application.discover().consumers]


@pytest.fixture(params=CONSUMERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_message_stays_hidden_for_six_timeouts_of_its_function(prod: Assembly, name: str) -> None:
    queue, function = prod.properties(prod.queue(name)), prod.properties(prod.function(name))
    assert queue["VisibilityTimeout"] >= 6 * function["Timeout"] + Timings().batching_window


def test_dead_letters_outlive_the_queue_they_come_from(prod: Assembly, name: str) -> None:
    queue = prod.properties(prod.queue(name))
    dead = prod.properties(prod.queue(f"{name}-dead"))
    assert dead["MessageRetentionPeriod"] == MAX_QUEUE_RETENTION > queue["MessageRetentionPeriod"]


def test_a_message_is_given_up__after_the_machinerys_number_of_receives(prod: Assembly, name: str) -> None:
    queue = prod.properties(prod.queue(name))
    assert queue["RedrivePolicy"]["maxReceiveCount"] == MAX_RECEIVES
    assert prod.dead_letters_of(prod.queue(name)) == prod.queue(f"{name}-dead")


def test_a_consumer_knows_the_queue_that_feeds_it(prod: Assembly, name: str) -> None:
    function = prod.function(name)
    variables = prod.properties(function)["Environment"]["Variables"]
    assert variables[QUEUE_VARIABLE] == f"${{{prod.queue(name)}}}"
    assert prod.mapping_of(function)["EventSourceArn"] == f"${{{prod.queue(name)}.Arn}}"


def test_one_bad_message_does_not_fail_its_batch(prod: Assembly, name: str) -> None:
    assert prod.mapping_of(prod.function(name))["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


def test_the_message_is_the_event_itself__without_eventbridges_wrapping(prod: Assembly) -> None:
    rule = prod.rule_into(prod.queue(notifications.name))
    assert rule["EventPattern"] == {"source": ["mailroom"], "detail-type": ["repo.created"]}
    assert rule["Targets"][0]["InputPath"] == "$.detail"
    assert rule["EventBusName"] == prod.deployment["buses"]["events"]


def test_a_consumer_that_splits_its_events_may_send_to_the_queue_of_the_parts__and_knows_it(prod: Assembly) -> None:
    splitting, parts = prod.function(webhooks.name), prod.queue(webhook_deliveries.name)
    assert prod.properties(splitting)["Environment"]["Variables"][PARTS_QUEUE_VARIABLE] == f"${{{parts}}}"
    sending = {place for place, actions in prod.grants(splitting).items() if "sqs:SendMessage" in actions}
    assert sending == {f"${{{parts}.Arn}}", f"${{{prod.queue(webhooks.name)}.Arn}}"}, "the parts', and its own"


def test_parts_come_from_a_consumer_alone__no_rule_feeds_their_queue(prod: Assembly) -> None:
    parts = prod.queue(webhook_deliveries.name)
    fed = {
        id_in(each["Arn"]) for rule in prod.of_type("Events::Rule").values() for each in rule["Properties"]["Targets"]
    }
    assert prod.queue(webhooks.name) in fed
    assert parts not in fed
    assert f"{webhook_deliveries.name}-undelivered" not in prod.deployment["queues"]


def test_a_delivery_shares_no_invocation__since_a_slow_receiver_would_hold_the_others(prod: Assembly) -> None:
    mapping = prod.mapping_of(prod.function(webhook_deliveries.name))
    assert mapping["BatchSize"] == 1


def test_webhooks_reach_the_public_internet_alone__but_on_a_laptop_itself_too(prod: Assembly, local: Assembly) -> None:
    def networks(assembly: Assembly) -> str:
        function = assembly.properties(assembly.function(webhook_deliveries.name))
        return str(function["Environment"]["Variables"]["MAILROOM_OUTBOUND_NETWORKS"])

    assert (networks(prod), networks(local)) == ("none", "127.0.0.0/8")


def test_a_consumer_runs_side_by_side_as_often_as_it_declares__but_for_the_stages_limit(
    prod: Assembly, local: Assembly
) -> None:
    def concurrency(assembly: Assembly) -> int:
        mapping = assembly.mapping_of(assembly.function(notifications.name))
        return int(mapping["ScalingConfig"]["MaximumConcurrency"])

    assert concurrency(prod) == notifications.max_concurrency
    assert concurrency(local) == 2


def test_queues_are_encrypted_by_sqs__or_eventbridge_would_drop_events_silently(prod: Assembly) -> None:
    for queue in prod.of_type("SQS::Queue").values():
        assert queue["Properties"]["SqsManagedSseEnabled"] is True
        assert "KmsMasterKeyId" not in queue["Properties"]
