"""What brings events from the stage's destination to the queues of its consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from aws_cdk import Stack, Token
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.stage import StageConfig
from mailroom.deployment import SERVICE
from mailroom.publishers.place import Arn, Place

BUS = "events"


class Feed(Protocol):
    """Puts events into queues, each as the CloudEvent that it is."""

    service: str
    """What people call it."""

    def bring(self, scope: Construct, types: Sequence[str], *, queue: sqs.Queue, undelivered: sqs.Queue) -> None:
        """Bring events of these types to a queue, and those that it does not take to another."""
        ...


class BusFeed:
    """A rule for each queue."""

    service = "EventBridge"

    def __init__(self, bus: events.IEventBus) -> None:
        self._bus = bus

    def bring(self, scope: Construct, types: Sequence[str], *, queue: sqs.Queue, undelivered: sqs.Queue) -> None:
        """Add the rule."""
        detail = events.RuleTargetInput.from_event_path("$.detail")
        events.Rule(
            scope,
            "Rule",
            event_bus=self._bus,
            event_pattern=events.EventPattern(source=[SERVICE], detail_type=list(types)),
            targets=[targets.SqsQueue(queue, message=detail, dead_letter_queue=undelivered)],
        )


class TopicFeed:
    """A subscription for each queue, filtered by the attributes that the relay sends along."""

    service = "SNS"

    def __init__(self, topic: sns.ITopic) -> None:
        self._topic = topic

    def bring(self, scope: Construct, types: Sequence[str], *, queue: sqs.Queue, undelivered: sqs.Queue) -> None:
        """Add the subscription."""
        allowed = {"source": [SERVICE], "type": list(types)}
        self._topic.add_subscription(
            subscriptions.SqsSubscription(
                queue,
                raw_message_delivery=True,
                filter_policy={
                    name: sns.SubscriptionFilter.string_filter(allowlist=values) for name, values in allowed.items()
                },
                dead_letter_queue=undelivered,
            )
        )


class StageDestination:
    """Where the relay of a stage delivers, and what feeds its consumers from there.

    A bus of its own if the stage names no destination.

    Parameters
    ----------
    scope
        The stack of the service itself.
    """

    def __init__(self, scope: Stack, *, stage: StageConfig) -> None:
        self.buses: Mapping[str, str] = {}
        """The names of the buses, for the stack's output."""
        self.feed: Feed | None = None
        """None if others have to bring events from there to the consumers' queues."""
        bus: events.IEventBus | None = None
        if stage.publisher_url is None:
            bus = events.EventBus(scope, "Bus")
            self.url = f"eventbridge://{bus.event_bus_name}"
        else:
            self.url = stage.publisher_url
            place = Place.of(self.url)
            if place.scheme == "eventbridge":
                bus = events.EventBus.from_event_bus_name(scope, "Bus", place.name)
            elif place.scheme == "sns" and _can_feed(scope, arn := place.arn("sns")):
                self.feed = TopicFeed(sns.Topic.from_topic_arn(scope, "Topic", arn.text))
        if bus is not None:
            self.buses, self.feed = {BUS: bus.event_bus_name}, BusFeed(bus)


def _can_feed(stack: Stack, topic: Arn) -> bool:
    """Answer whether consumers' queues, and those for what they do not take, can be subscribed to a topic.

    What is left over of a FIFO topic's subscription goes to a FIFO queue, and ours are standard.
    https://docs.aws.amazon.com/sns/latest/dg/sns-dead-letter-queues.html
    """
    return not topic.is_fifo and _is_here(stack, topic)


def _is_here(stack: Stack, arn: Arn) -> bool:
    """Answer whether something is in the stack's account and region, as far as synth knows them."""
    here = ((stack.account, arn.account), (stack.region, arn.region))
    return all(ours == theirs or Token.is_unresolved(ours) for ours, theirs in here)
