"""What cannot work fails synth, and says which line is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from aws_cdk import App
from pynamodb.attributes import UnicodeAttribute

from app.consumers.notifications import notifications
from infra.application import Application
from infra.lambda_function import Workload
from infra.stacks import add_stacks
from infra.stage import StageConfig, StageError
from mailroom.declarations import DeclarationError
from mailroom.needs import Access
from mailroom.row import Row
from mailroom.timings import TimingError, Timings
from tests.infra.conftest import ENVIRONMENT

Stage = Callable[[str], StageConfig]


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"api_timeout": 30}, "api_timeout <= 29 s"),
        ({"sweep_timeout": 60}, "sweep_timeout < sweep_period"),
        ({"wake_up_age": 59}, "wake_up_age >= 60 s"),
        ({"job_start_within": 59}, "60 s <= job_start_within <= 6 h"),
        ({"lease": 20}, "lease .* >= 2 x clock_skew"),
        ({"dead_letter_retention": 86_400}, "dead_letter_retention > source_retention"),
    ],
    ids=str,
)
def test_contradicting_timings_fail_synth__by_name(
    app: App, stage: Stage, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, int], line: str
) -> None:
    monkeypatch.setattr("infra.stage.timings_of", lambda _: Timings(**wrong))
    with pytest.raises(TimingError, match=line):
        add_stacks(app, stage=stage("local"), env=ENVIRONMENT)


def test_a_job_of_the_machinery_that_may_run_into_its_next_firing_fails_synth(
    app: App, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Application.discover()
    slow = tuple(replace(job, timeout=60) if job.name == "metrics_export" else job for job in found.jobs)
    monkeypatch.setattr(Application, "discover", lambda: replace(found, jobs=slow))
    with pytest.raises(TimingError, match="metrics_export may run for 60 s and is fired every 60 s"):
        add_stacks(app, stage=stage("local"), env=ENVIRONMENT)


def test_a_consumer_and_a_job_of_one_name_fail_synth(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Application.discover()
    twin = replace(found.jobs[0], name=notifications.name, module="app.jobs.twin")
    monkeypatch.setattr(
        "mailroom.registry.discover", lambda package, _: {"app.jobs": [twin]}.get(package, [notifications])
    )
    with pytest.raises(DeclarationError, match=r"app\.consumers\.notifications and .* both declare 'notifications'"):
        Application.discover()


@pytest.mark.parametrize("name", ["api", "operations", "relay"])
def test_a_consumer_with_the_name_of_a_function_that_is_always_there_fails_synth(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    twin = replace(notifications, name=name)
    monkeypatch.setattr("mailroom.registry.discover", lambda package, _: [twin] if package == "app.consumers" else [])
    with pytest.raises(DeclarationError, match=f"the machinery and .* both declare '{name}'"):
        Application.discover()


@pytest.mark.usefixtures("forget_models")
def test_a_model_without_a_setting_fails_synth__and_names_the_field(
    app: App, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Draft(Row):
        class Meta:
            short_name = "drafts"

        id = UnicodeAttribute(hash_key=True)

    found = Application.discover()
    drafting = replace(notifications, access=Access(reads=(Draft,)))
    monkeypatch.setattr(Application, "discover", lambda: replace(found, consumers=(drafting,)))
    with pytest.raises(DeclarationError, match="Draft has no table: add the field 'drafts_table'"):
        add_stacks(app, stage=stage("local"), env=ENVIRONMENT)


def test_a_setting_without_a_model_fails_synth(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Application.discover()
    monkeypatch.delitem(Row.tables, "owners")
    with pytest.raises(DeclarationError, match="the settings name the table 'owners'"):
        assert found.models


@pytest.mark.parametrize("name", ["", "Prod", "my stage", "x" * 21])
def test_a_stage_that_cannot_name_a_stack_is_refused(stage: Stage, name: str) -> None:
    with pytest.raises(StageError, match="is no stage"):
        stage(name)


@pytest.mark.parametrize("timeout", [-1, 901])
def test_a_timeout_that_lambda_does_not_know_fails_synth(timeout: int) -> None:
    hasty = replace(notifications, timeout=timeout)
    with pytest.raises(DeclarationError, match="notifications: a timeout is 1 to 900 s"):
        Workload.of(hasty, folder="consumer", timeout=30)
