"""One line of context switches where a stage delivers, and with it grants, layers and what feeds consumers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App

from app.consumers.notifications import notifications
from app.consumers.webhook_deliveries import webhook_deliveries
from infra.application import Application
from infra.stage import StageConfig, StageError
from mailroom.publishers.broker import BrokerPublisher
from tests.infra.assembly import Assembly, id_in, listed
from tests.infra.conftest import ENVIRONMENT, SynthOf

ACCOUNT, REGION = ENVIRONMENT.account, ENVIRONMENT.region
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:things"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:things"
SECRET = f"arn:${{AWS::Partition}}:secretsmanager:{REGION}:{ACCOUNT}:secret:keys-??????"
BUS_ARN = f"arn:${{AWS::Partition}}:events:{REGION}:{ACCOUNT}:event-bus/others"
URLS = {
    "eventbridge://others": {BUS_ARN: {"events:DescribeEventBus", "events:PutEvents"}},
    f"sns://{TOPIC}": {TOPIC: {"sns:Publish"}},
    f"sns://{TOPIC}.fifo": {f"{TOPIC}.fifo": {"sns:Publish"}},
    f"sqs://{QUEUE}.fifo": {f"{QUEUE}.fifo": {"sqs:GetQueueUrl", "sqs:SendMessage"}},
    "ymq://message-queue.api.cloud.yandex.net/b1g/things?secret=keys": {SECRET: {"secretsmanager:GetSecretValue"}},
    "kafka://broker.example:9092/things?secret=keys": {SECRET: {"secretsmanager:GetSecretValue"}},
    "amqps://broker.example/things?exchange=things&secret=keys": {SECRET: {"secretsmanager:GetSecretValue"}},
}
FED = ("eventbridge://others", f"sns://{TOPIC}")
PUBLISHERS = ("relay", "outbox_relay")

Deploy = Callable[[str], Assembly]


@pytest.fixture
def deploy(built_layers: Path, synth_of: SynthOf) -> Deploy:
    """Synthesizes the stage `dev` with a destination, on first use."""

    def make(url: str) -> Assembly:
        return synth_of(
            StageConfig.of("dev", email_sender="sender@example.com", publisher_url=url, built_layers=built_layers)
        )

    return make


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def is_fed(url: str) -> bool:
    return url in FED


def test_every_function_knows_the_destination(deploy: Deploy, url: str) -> None:
    functions = deploy(url).of_type("Lambda::Function")
    told = {each["Properties"]["Environment"]["Variables"]["MAILROOM_PUBLISHER_URL"] for each in functions.values()}
    assert told == {url}


def test_who_publishes_may_do_what_the_destination_needs__and_nobody_else(deploy: Deploy, url: str) -> None:
    assembly = deploy(url)
    for name in assembly.deployment["functions"]:
        grants = assembly.grants(assembly.function(name))
        for resource, actions in URLS[url].items():
            assert grants.get(resource, set()) == (actions if name in PUBLISHERS else set()), name


def test_no_bus_is_looked_at_or_made__where_none_is_delivered_to(deploy: Deploy, url: str) -> None:
    assembly = deploy(url)
    assert assembly.of_type("Events::EventBus") == {}
    to_bus = url.startswith("eventbridge:")
    assert assembly.deployment["buses"] == ({"events": "others"} if to_bus else {})
    grants = assembly.grants(assembly.function("relay"))
    assert any("events:DescribeEventBus" in each for each in grants.values()) == to_bus


def test_who_publishes_to_a_broker_has_its_client__and_nobody_else(deploy: Deploy, url: str) -> None:
    assembly = deploy(url)
    brokers = [name for name in assembly.of_type("Lambda::LayerVersion") if f"{BrokerPublisher.layer}".title() in name]
    layers = {name: assembly.properties(assembly.function(name))["Layers"] for name in assembly.deployment["functions"]}
    have = {name for name, each in layers.items() if len(each) == 4 and id_in(each[3]) in brokers}
    assert have == (set(PUBLISHERS) if url.startswith(("kafka", "amqp")) else set())


def test_consumers_have_their_queues_and_alarms__whoever_feeds_them(deploy: Deploy, url: str) -> None:
    assembly = deploy(url)
    for consumer in Application.discover().consumers:
        queue = assembly.queue(consumer.name)
        assert assembly.mapping_of(assembly.function(consumer.name))["EventSourceArn"] == f"${{{queue}.Arn}}"
        assert assembly.alarms_on(f"{queue}")
        fed = is_fed(url) and consumer.part is None
        assert (f"{consumer.name}-undelivered" in assembly.deployment["queues"]) == fed


def test_a_destination_that_feeds_nobody_warns_at_synth__of_every_queue_and_what_goes_there(
    deploy: Deploy, url: str
) -> None:
    warnings = warned(deploy(url))
    if is_fed(url):
        assert warnings == []
    else:
        (warning,) = warnings
        assert f"delivers to {url.partition(':')[0]}://…" in warning
        assert "notifications (repo.created)" in warning
        assert webhook_deliveries.name not in warning


def warned(assembly: Assembly) -> list[str]:
    return [each for each in assembly.warnings if "queues-to-be-fed" in each]


# A bus of others


def test_rules_are_on_the_bus_that_is_delivered_to(deploy: Deploy) -> None:
    assembly = deploy("eventbridge://others")
    assert assembly.rule_into(assembly.queue(notifications.name))["EventBusName"] == "others"


# A topic


def subscription_into(assembly: Assembly, queue: str) -> dict[str, object]:
    return next(
        each["Properties"]
        for each in assembly.of_type("SNS::Subscription").values()
        if id_in(each["Properties"]["Endpoint"]) == queue
    )


def test_consumers_are_subscribed_to_the_topic__each_to_the_events_it_is_for(deploy: Deploy) -> None:
    assembly = deploy(f"sns://{TOPIC}")
    subscription = subscription_into(assembly, assembly.queue(notifications.name))
    undelivered = assembly.queue(f"{notifications.name}-undelivered")
    assert subscription == {
        "Protocol": "sqs",
        "TopicArn": TOPIC,
        "Region": REGION,
        "Endpoint": f"${{{assembly.queue(notifications.name)}.Arn}}",
        "RawMessageDelivery": True,
        "FilterPolicy": {"source": ["mailroom"], "type": ["repo.created"]},
        "RedrivePolicy": {"deadLetterTargetArn": f"${{{undelivered}.Arn}}"},
    }


def test_the_topic_alone_may_put_events_into_a_consumers_queues(deploy: Deploy) -> None:
    assembly = deploy(f"sns://{TOPIC}")
    for name in (notifications.name, f"{notifications.name}-undelivered"):
        queue = assembly.queue(name)
        (policy,) = (
            each["Properties"]
            for each in assembly.of_type("SQS::QueuePolicy").values()
            if queue in map(id_in, each["Properties"]["Queues"])
        )
        allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
        assert {action for each in allowed for action in listed(each["Action"])} == {"sqs:SendMessage"}
        assert [each["Condition"] for each in allowed] == [{"ArnEquals": {"aws:SourceArn": TOPIC}}]


@pytest.mark.parametrize(
    "topic", [TOPIC.replace(str(ACCOUNT), "999999999999"), TOPIC.replace(str(REGION), "eu-west-1")]
)
def test_a_topic_elsewhere_is_for_its_owner_to_subscribe_to(deploy: Deploy, topic: str) -> None:
    assert len(warned(deploy(f"sns://{topic}"))) == 1


def test_a_fifo_topic_has_no_subscriptions_of_ours__whose_dead_letter_queues_would_be_standard(deploy: Deploy) -> None:
    assert deploy(f"sns://{TOPIC}.fifo").of_type("SNS::Subscription") == {}


# URLs that cannot be


@pytest.mark.parametrize(
    "url",
    [
        "",
        "things",
        "smoke://signals",
        "eventbridge://",
        f"eventbridge://arn:aws:events:{REGION}:{ACCOUNT}:event-bus/others",
        f"sns://{QUEUE}",
        "sns://things",
        f"sqs://{TOPIC}",
        "ymq://host/path",
        "ymq://key:secret@host/path?secret=keys",
        "kafka://host:1/?secret=keys",
        "amqps://host/vhost?secret=keys",
    ],
)
def test_a_url_that_names_no_destination_fails_synth__with_what_is_wrong(url: str) -> None:
    with pytest.raises(StageError, match=r"publisher_url .*://… cannot be: .+"):
        StageConfig.of("dev", email_sender="sender@example.com", publisher_url=url)


def test_without_a_url_a_stage_has_a_bus_of_its_own(app: App, prod: Assembly) -> None:
    (bus,) = prod.of_type("Events::EventBus")
    assert prod.deployment["settings"]["MAILROOM_PUBLISHER_URL"] == f"eventbridge://${{{bus}}}"
