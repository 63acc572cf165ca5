"""Everything that jobs need, built from what each declares."""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_destinations as destinations
from constructs import Construct

from infra.grants import LEASE_ACTIONS
from infra.lambda_function import LambdaFunction, Workload
from infra.monitoring import Runbook
from infra.queue import DeadLetterQueue
from infra.surroundings import Surroundings
from mailroom.deployment import DEAD, UNDELIVERED
from mailroom.job import Job
from mailroom.lease import LeaseRow


class DeployedJob(Construct):
    """One job: schedule → function, with a place for the runs that did not start and those that failed."""

    def __init__(self, scope: Construct, job: Job, *, surroundings: Surroundings) -> None:
        super().__init__(scope, job.name)
        self._job = job
        self._surroundings = surroundings
        self.function = self._build_function()
        self.dead = self._keep_failed_runs()
        self.undelivered = self._schedule()

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
        function.allow(LeaseRow, LEASE_ACTIONS)
        return function

    def _keep_failed_runs(self) -> DeadLetterQueue:
        dead = DeadLetterQueue(
            self,
            "Dead",
            surroundings=self._surroundings,
            means=f"A run of the job {self._job.name} failed, its repetitions too.",
            first=self.function.tail,
            runbook=Runbook.FAILED_JOBS,
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
            means=f"EventBridge could not start the job {self._job.name}.",
            runbook=Runbook.UNDELIVERED,
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
