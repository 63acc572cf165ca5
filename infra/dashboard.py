"""One dashboard that reads as events travel, left to right: requests, outbox, destination, consumers, what died."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.api import FunctionApi
from infra.consumers import DeployedConsumer
from infra.jobs import DeployedJob
from infra.monitoring import MINUTE, counter, gauge
from mailroom.telemetry import Metric

_WIDTHS = (5, 5, 4, 5, 5)
"""Of the columns, 24 in all. https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html"""
_HEIGHT = 6

Graph = tuple[str, Sequence[cloudwatch.IMetric]]


class Dashboard(Construct):
    """The dashboard of a stage."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        api: FunctionApi,
        consumers: Iterable[DeployedConsumer],
        jobs: Iterable[DeployedJob],
    ) -> None:
        super().__init__(scope, id_)
        consumers, jobs = list(consumers), list(jobs)
        columns = (_requests(api), _outbox(), _destination(), _consumers(consumers), _dead(consumers, jobs))
        self.dashboard = cloudwatch.Dashboard(self, "Dashboard", period_override=cloudwatch.PeriodOverride.INHERIT)
        self.dashboard.add_widgets(*(_column(graphs, width) for graphs, width in zip(columns, _WIDTHS, strict=True)))


def _requests(api: FunctionApi) -> list[Graph]:
    return [
        ("Requests", [api.api.metric_count(period=MINUTE), counter(Metric.REPLAYED_REQUESTS)]),
        (
            "Refused and failed",
            [api.api.metric_client_error(period=MINUTE), api.api.metric_server_error(period=MINUTE)],
        ),
        ("Latency", [api.api.metric_latency(period=MINUTE, statistic="p99")]),
    ]


def _outbox() -> list[Graph]:
    return [
        ("Outbox: pending", [gauge(Metric.OUTBOX_PENDING)]),
        ("Outbox: oldest pending", [gauge(Metric.OUTBOX_OLDEST_PENDING_SECONDS)]),
        ("Relay: from commit to destination", [counter(Metric.RELAY_LAG_SECONDS, "p99")]),
    ]


def _destination() -> list[Graph]:
    return [
        ("Destination: published", [counter(Metric.EVENTS_PUBLISHED)]),
        ("Destination: tried again, died", [counter(Metric.EVENTS_RETRIED), counter(Metric.EVENTS_DEAD)]),
        ("Destination: relay paused", [counter(Metric.RELAY_PAUSED)]),
    ]


def _consumers(consumers: Sequence[DeployedConsumer]) -> list[Graph]:
    queues = [(each.function.name, each.queue.queue) for each in consumers]
    functions = [(each.function.name, each.function.function) for each in consumers]
    return [
        (
            "Consumers: waiting",
            [queue.metric_approximate_number_of_messages_visible(label=name, period=MINUTE) for name, queue in queues],
        ),
        (
            "Consumers: oldest message",
            [queue.metric_approximate_age_of_oldest_message(label=name, period=MINUTE) for name, queue in queues],
        ),
        (
            "Consumers: failed messages, errors",
            [
                counter(Metric.MESSAGES_FAILED),
                *(function.metric_errors(label=name, period=MINUTE) for name, function in functions),
            ],
        ),
        (
            "Sagas",
            [
                counter(Metric.SAGA_STARTED),
                counter(Metric.SAGA_COMPLETED),
                counter(Metric.SAGA_COMPENSATED),
                gauge(Metric.SAGA_STUCK),
            ],
        ),
    ]


def _dead(consumers: Sequence[DeployedConsumer], jobs: Sequence[DeployedJob]) -> list[Graph]:
    queues = [(each.function.name, each.queue.dead_letters.queue) for each in consumers]
    queues += [(each.function.name, each.dead.queue) for each in jobs]
    lost = [(each.function.name, each.undelivered.queue) for each in consumers if each.undelivered]
    lost += [(each.function.name, each.undelivered.queue) for each in jobs]
    return [
        ("Dead: all together, in the outbox", [gauge(Metric.DLQ_EVENTS_TOTAL), gauge(Metric.OUTBOX_DEAD)]),
        (
            "Dead: given up",
            [queue.metric_approximate_number_of_messages_visible(label=name, period=MINUTE) for name, queue in queues],
        ),
        (
            "Dead: undelivered",
            [queue.metric_approximate_number_of_messages_visible(label=name, period=MINUTE) for name, queue in lost],
        ),
    ]


def _column(graphs: Iterable[Graph], width: int) -> cloudwatch.IWidget:
    widgets = [
        cloudwatch.GraphWidget(title=title, left=list(metrics), width=width, height=_HEIGHT)
        for title, metrics in graphs
    ]
    return cast(cloudwatch.IWidget, cloudwatch.Column(*cast(list[cloudwatch.IWidget], widgets)))
