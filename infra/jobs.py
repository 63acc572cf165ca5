"""Everything that jobs need, built from what each declares."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_destinations as destinations
from constructs import Construct

from infra.lambda_function import LambdaFunction, Workload
from infra.monitoring import Advice, Runbook, When
from infra.queue import DeadLetterQueue
from infra.surroundings import Surroundings
from mailroom import lease
from mailroom.deployment import DEAD, UNDELIVERED
from mailroom.job import Job
from mailroom.schedule import Schedule
from mailroom.timings import DAY, MINUTE

_SHORTEST_SILENCE = 5 * MINUTE
_LONGEST_LOOK = 7 * DAY


class DeployedJob(Construct):
    """One job: schedule → function, with a place for the runs that did not start and those that failed."""

    def __init__(self, scope: Construct, job: Job, *, surroundings: Surroundings) -> None:
        super().__init__(scope, job.name)
        self._job = job
        self._surroundings = surroundings
        self.function = self._build_function()
        self.dead = self._keep_failed_runs()
        self.undelivered = self._schedule()
        self._watch()

    @property
    def queues(self) -> dict[str, str]:
        """The URLs of its queues, by short name."""
        name = self._job.name
        return {
            f"{name}{DEAD}": self.dead.queue.queue_url,
            f"{name}{UNDELIVERED}": self.undelivered.queue.queue_url,
        }

    def _build_function(self) -> LambdaFunction:
        timeout = self._surroundings.timings.job_timeout
        workload = Workload.of(self._job, folder="job", timeout=timeout)
        function = LambdaFunction(self, "Function", surroundings=self._surroundings, workload=workload)
        function.allow(lease.NEEDS)
        return function

    def _keep_failed_runs(self) -> DeadLetterQueue:
        dead = DeadLetterQueue(
            self,
            "Dead",
            surroundings=self._surroundings,
            advice=self._advise("A run of the job {name} failed, its repetitions too.", Runbook.FAILED_JOBS),
        )
        self.function.function.configure_async_invoke(
            on_failure=destinations.SqsDestination(dead.queue),
            retry_attempts=self._surroundings.timings.job_retries,
            max_event_age=Duration.seconds(self._surroundings.timings.job_start_within),
        )
        return dead

    def _schedule(self) -> DeadLetterQueue:
        timings = self._surroundings.timings
        undelivered = DeadLetterQueue(
            self,
            "Undelivered",
            surroundings=self._surroundings,
            advice=self._advise("EventBridge could not start the job {name}.", Runbook.UNDELIVERED),
        )
        events.Rule(
            self,
            "Rule",
            schedule=events.Schedule.expression(self._job.schedule.to_eventbridge()),
            targets=[
                targets.LambdaFunction(
                    self.function.function,
                    dead_letter_queue=undelivered.queue,
                    retry_attempts=timings.job_retries,
                    max_event_age=Duration.seconds(timings.job_start_within),
                )
            ],
        )
        return undelivered

    def _watch(self) -> None:
        """Sound when nothing was started for longer than the schedule allows: Lambda reports no zeros, only silence."""
        window = silence_of(self._job.schedule)
        if window is None:
            return
        period, periods = window
        self._surroundings.alarms.add(
            self,
            "Silent",
            metric=self.function.function.metric_invocations(period=Duration.seconds(period), statistic="Sum"),
            when=When(below=1, periods=periods, silence=True),
            advice=self._advise("The job {name} has not run for longer than its schedule allows.", Runbook.SILENT_JOBS),
        )

    def _advise(self, means: str, runbook: Runbook) -> Advice:
        first = self._surroundings.alarms.command("jobs")
        return Advice(means=means.format(name=self._job.name), first=first, runbook=runbook)


def silence_of(schedule: Schedule) -> tuple[int, int] | None:
    """Answer for how many periods of how many seconds a job must not have run before that means something.

    None if that is longer than an alarm looks back: seven days, in periods of a day at most.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch-limits.html
    """
    period = min(schedule.longest_gap, DAY)
    periods = max(-(-schedule.longest_gap // period) + 1, -(-_SHORTEST_SILENCE // period))
    return (period, periods) if period * periods <= _LONGEST_LOOK else None


class Jobs(Construct):
    """All jobs."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        jobs: Iterable[Job],
        surroundings: Surroundings,
    ) -> None:
        super().__init__(scope, id_)
        self.all = [DeployedJob(self, each, surroundings=surroundings) for each in jobs]
