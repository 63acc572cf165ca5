"""A deployed stage in moto: what dies in it, what starts its parts, and the command to run it by."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from typer.testing import CliRunner

from mailroom import clients
from mailroom.cli import dead_redrive, main, operator, outcomes
from mailroom.controls import RELAY
from mailroom.deployment import DEAD, UNDELIVERED, Deployment, NotDeployed
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from tests.lagging_reads import LaggingReads

from ..dead_letters.conftest import BEHAVE, queues_by_the_clock  # noqa: F401 - for every test here
from ..dead_letters.conftest import Stage as DyingStage
from ..lagging import lagging_tables  # noqa: F401 - for every test here
from ..outbox.conftest import Outbox, outbox  # noqa: F401 - a fixture

CONSUMER, JOB = "greeter", "sweep_up"
SCHEDULE = "rate(1 hour)"


class Stage(DyingStage):
    """The stage in which things die, with a job, and with what starts the job, the consumer and the relay."""

    def __init__(self, runtime: Runtime, clock: ManualClock, events: Outbox) -> None:
        # Attached to nothing: no read lags here.
        super().__init__(runtime, clock, events, LaggingReads(lambda: clock))
        for end in (DEAD, UNDELIVERED):
            self.queues[f"{JOB}{end}"] = clients.sqs().create_queue(QueueName=f"{JOB}{end}")["QueueUrl"]
        self.deployment = Deployment(
            stage="test",
            settings=runtime.settings.to_env(),
            tables=dict(Row.deployed),
            queues=self.queues,
            functions={name: f"{name}-function" for name in (CONSUMER, JOB, RELAY)},
        )

    def deploy_functions(self) -> None:
        """Make the functions and what starts them; of all commands only those about status and switches need them."""
        for name in self.deployment.functions.values():
            make_function(name)
        # moto's mapping empties the queue that it is made for: the consumer's own must keep its messages.
        clients.sqs().create_queue(QueueName="elsewhere")
        for name in (CONSUMER, RELAY):
            source = "arn:aws:sqs:us-east-1:123456789012:elsewhere"
            clients.functions().create_event_source_mapping(FunctionName=f"{name}-function", EventSourceArn=source)
        schedule_job()


@dataclass
class Answer:
    """What a run of the command said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def words(self) -> str:
        """The output as one line: where it is broken depends on its width."""
        return " ".join(self.out.split())


class Command:
    """Runs `mailroom`, as a pipe unless told that someone sits there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stage: str = "test", answers: str | None = None) -> Answer:
        """Run it; `answers` is what someone at the terminal types."""
        for module in (operator, outcomes, dead_redrive):
            self._monkeypatch.setattr(module, "is_terminal", lambda: answers is not None)
        done = CliRunner().invoke(
            main.app, [*arguments, "--stage", stage], input=answers, env={"COLUMNS": "80"}, prog_name="mailroom"
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)


@pytest.fixture
def stage(runtime: Runtime, clock: ManualClock, outbox: Outbox) -> Stage:
    BEHAVE.clear()
    return Stage(runtime, clock, outbox)


@pytest.fixture
def mailroom(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command, for the stage `test`; no other is deployed."""

    def from_stack(name: str) -> tuple[Runtime, Deployment]:
        if name != "test":
            raise NotDeployed(f"there is no stack mailroom-{name}-service in this account and region")
        return stage.runtime, stage.deployment

    monkeypatch.setattr(Runtime, "from_stack", from_stack)
    return Command(monkeypatch)


def make_function(name: str) -> None:
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", "def handler(event, context): ...")
    iam = boto3.client("iam")
    if not iam.list_roles()["Roles"]:
        iam.create_role(RoleName="role", AssumeRolePolicyDocument="{}")
    clients.functions().create_function(
        FunctionName=name,
        Runtime="python3.13",
        Role="arn:aws:iam::123456789012:role/role",
        Handler="handler.handler",
        Code={"ZipFile": code.getvalue()},
    )


def schedule_job() -> None:
    clients.events().put_rule(Name=f"{JOB}-rule", ScheduleExpression=SCHEDULE, State="ENABLED")
    arn = f"arn:aws:lambda:us-east-1:123456789012:function:{JOB}-function"
    clients.events().put_targets(Rule=f"{JOB}-rule", Targets=[{"Id": "1", "Arn": arn}])
