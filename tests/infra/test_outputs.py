"""What the service stack tells of itself is whole, and fits however many consumers there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from aws_cdk import App

from app.consumers.notifications import notifications
from infra.application import Application
from infra.stacks import add_stacks
from infra.stage import StageConfig
from mailroom.deployment import DEAD, OUTPUT, UNDELIVERED, Deployment
from tests.infra.assembly import Assembly
from tests.infra.conftest import ENVIRONMENT

MAX_OUTPUT = 4_096
"""Bytes. https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
LONGEST_VALUE = "x" * 150
"""What a reference becomes at most: the URL of a queue whose name has all of its 80 characters."""
MANY = [f"{notifications.name}_of_kind_{number}" for number in range(30)]


def deployed_length(output: str) -> int:
    return len(re.sub(r"\$\{[^}]+\}", LONGEST_VALUE, output).encode())


@pytest.fixture(scope="module")
def crowded(stage: Callable[[str], StageConfig], tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """A stage with thirty consumers."""
    found = Application.discover()
    many = tuple(replace(notifications, name=name) for name in MANY)
    app = App(
        outdir=str(tmp_path_factory.mktemp("crowded")),
        analytics_reporting=False,
        context={"@aws-cdk/core:stackResourceLimit": 0},
        builtin_cloud_formation_validation=False,  # it takes most of the time, and other tests have it
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Application, "discover", lambda: replace(found, consumers=many))
        add_stacks(app, stage=stage("local"), env=ENVIRONMENT)
    return Assembly(folder=Path(app.synth().directory), prefix="mailroom-local")


def test_each_output_fits__with_thirty_consumers(crowded: Assembly) -> None:
    too_long = {name: size for name, each in crowded.outputs.items() if (size := deployed_length(each)) > MAX_OUTPUT}
    assert too_long == {}


def test_the_outputs_together_name_every_consumer_and_its_queues(crowded: Assembly) -> None:
    deployment = Deployment.from_outputs("local", crowded.outputs)
    assert deployment.consumers == sorted(MANY)
    assert set(deployment.queues) >= {f"{name}{end}" for name in MANY for end in ("", DEAD, UNDELIVERED)}


def test_jobs_are_told_from_consumers(prod: Assembly) -> None:
    deployment, application = Deployment.from_outputs("prod", prod.outputs), Application.discover()
    assert deployment.jobs == sorted(each.name for each in application.jobs)
    assert deployment.consumers == sorted(each.name for each in application.consumers)


def test_every_output_is_part_of_the_deployment(prod: Assembly) -> None:
    assert all(name.startswith(OUTPUT) for name in prod.outputs)
    assert set(prod.of_type("Lambda::Function")) == {prod.function(name) for name in prod.deployment["functions"]}
    assert set(prod.of_type("SQS::Queue")) == {prod.queue(name) for name in prod.deployment["queues"]}
