"""Everything that consumers need, built from what each declares."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Annotations, Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.feeds import Feed
from infra.lambda_function import LambdaFunction, Workload
from infra.monitoring import Advice, Runbook
from infra.queue import DeadLetterQueue, QueueWithDeadLetters
from infra.surroundings import Surroundings
from mailroom.consumer import PARTS_QUEUE_VARIABLE, QUEUE_VARIABLE, Consumer
from mailroom.deployment import DEAD, UNDELIVERED
from mailroom.publishers.place import Place


class DeployedConsumer(Construct):
    """One consumer: destination → queue → function, with a place for what each of them cannot pass on.

    Parts come from another consumer. Without a feed it is for others to put events into the queue.
    """

    def __init__(self, scope: Construct, consumer: Consumer, *, surroundings: Surroundings, feed: Feed | None) -> None:
        super().__init__(scope, consumer.name)
        self.consumer = consumer
        self._surroundings = surroundings
        self.function = self._build_function()
        self.queue = self._build_queue()
        self.undelivered = self._subscribe(feed) if feed is not None and consumer.part is None else None
        self._feed()

    @property
    def queues(self) -> dict[str, str]:
        """The URLs of its queues, by short name."""
        name = self.consumer.name
        urls = {name: self.queue.queue.queue_url, f"{name}{DEAD}": self.queue.dead_letters.queue.queue_url}
        if self.undelivered is not None:
            urls[f"{name}{UNDELIVERED}"] = self.undelivered.queue.queue_url
        return urls

    def send_parts_to(self, receiver: DeployedConsumer) -> None:
        """Give the function what it needs to hand its parts on."""
        queue = receiver.queue.queue
        self.function.function.add_environment(PARTS_QUEUE_VARIABLE, queue.queue_url)
        self._allow_sending_to(queue)

    def _allow_sending_to(self, queue: sqs.IQueue) -> None:
        self.function.role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[queue.queue_arn]))

    def _build_function(self) -> LambdaFunction:
        timeout = self._surroundings.timings.consumer_timeout
        workload = Workload.of(self.consumer, folder="consumer", timeout=timeout)
        function = LambdaFunction(self, "Function", surroundings=self._surroundings, workload=workload)
        for need in self.consumer.needs:
            function.allow(need)
        return function

    def _build_queue(self) -> QueueWithDeadLetters:
        return QueueWithDeadLetters(
            self,
            "Messages",
            surroundings=self._surroundings,
            function_timeout=self.function.workload.timeout,
            gave_up=self._advise(
                "The consumer {name} gave up on a message.", "dead list --source {name}", Runbook.DEAD_LETTERS
            ),
            too_old=self._advise(
                "The consumer {name} does not keep up: a message is older than all its attempts take.",
                "status",
                Runbook.OLD_MESSAGES,
            ),
        )

    def _advise(self, means: str, first: str, runbook: Runbook) -> Advice:
        name, command = self.consumer.name, self._surroundings.alarms.command
        return Advice(means=means.format(name=name), first=command(first.format(name=name)), runbook=runbook)

    def _subscribe(self, feed: Feed) -> DeadLetterQueue:
        undelivered = DeadLetterQueue(
            self,
            "Undelivered",
            surroundings=self._surroundings,
            advice=self._advise(
                f"{feed.service} could not put an event into the queue of {{name}}.",
                f"dead list --source {{name}}{UNDELIVERED}",
                Runbook.UNDELIVERED,
            ),
        )
        feed.bring(
            self,
            [event.type for event in self.consumer.on],
            queue=self.queue.queue,
            undelivered=undelivered.queue,
        )
        return undelivered

    def _feed(self) -> None:
        self.function.function.add_environment(QUEUE_VARIABLE, self.queue.queue.queue_url)
        if self.consumer.patience != 0:  # what waits longer than a message can goes on as a copy
            self._allow_sending_to(self.queue.queue)
        window = self._surroundings.timings.batching_window
        self.function.function.add_event_source(
            sources.SqsEventSource(
                self.queue.queue,
                batch_size=self.consumer.batch_size,
                max_batching_window=Duration.seconds(window) if window else None,
                max_concurrency=min(self.consumer.max_concurrency, self._surroundings.stage.concurrency),
                report_batch_item_failures=True,
            )
        )


class Consumers(Construct):
    """All consumers."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        consumers: Iterable[Consumer],
        surroundings: Surroundings,
        feed: Feed | None,
    ) -> None:
        super().__init__(scope, id_)
        self.all = [DeployedConsumer(self, each, surroundings=surroundings, feed=feed) for each in consumers]
        receivers = {each.consumer.part: each for each in self.all if each.consumer.part}
        for each in self.all:
            for part in each.consumer.access.splits_into:
                each.send_parts_to(receivers[part])
        if feed is None:
            self._warn(surroundings.stage.publisher_url)

    def _warn(self, url: str | None) -> None:
        hungry = {each.consumer.name: each.consumer.on for each in self.all if each.consumer.part is None}
        types = (f"{name} ({', '.join(event.type for event in on)})" for name, on in hungry.items())
        Annotations.of(self).add_warning_v2(
            "mailroom:queues-to-be-fed",
            f"the relay delivers to {Place.of(url or '').scheme}://…, from where nothing in this stack takes events: "
            f"bring them to the queues of {'; '.join(types)}, whose URLs the stack's outputs tell",
        )
