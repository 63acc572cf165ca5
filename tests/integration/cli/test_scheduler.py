"""`mailroom scheduler`: what it runs, where its settings come from, how it is told to end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from app.settings import AppSettings
from mailroom import clients
from mailroom.cli import main, scheduling
from mailroom.deployment import Deployment, NotDeployed
from mailroom.registry import Registry
from mailroom.runtime import Runtime
from mailroom.scheduler import Scheduler
from mailroom.settings import Settings
from tests.log_lines import Lines
from tests.missing import without

PATIENCE = 20

Run = Callable[..., Result]


JOBS = [each.name for each in Registry.of().jobs]


@pytest.fixture
def environment(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the stage, as a container has them."""
    for name, value in (runtime.settings.to_env() | runtime.of(AppSettings).to_env()).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def run() -> Run:
    """Runs the command."""
    return lambda *arguments: CliRunner().invoke(main.app, ["scheduler", *arguments], prog_name="mailroom")


@pytest.fixture
def told_once_started(logs: Lines) -> Iterator[None]:
    """Sends SIGTERM to the command once it says that it has started: its own handlers are there by then."""

    def tell() -> None:
        tries = threading.Event()
        while not any(line["message"] == "scheduler started" for line in logs()):
            if tries.wait(0.01) or over.is_set():
                return
        os.kill(os.getpid(), signal.SIGTERM)

    over = threading.Event()
    thread = threading.Thread(target=tell)
    thread.start()
    yield
    over.set()
    thread.join(PATIENCE)


def test_it_runs_all_jobs_until_it_is_told_to_end__with_the_settings_of_the_environment(
    environment: None, told_once_started: None, run: Run, logs: Lines
) -> None:
    done = run()
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line for line in logs() if line["message"].startswith("scheduler")]
    assert [line["message"] for line in lines] == ["scheduler started", "scheduler stopped"]
    assert lines[0]["jobs"] == JOBS


def test_it_runs_those_jobs_that_are_named(environment: None, told_once_started: None, run: Run, logs: Lines) -> None:
    done = run("--only", "outbox_relay", "--only", "cleanup", "--only", "cleanup")
    assert done.exit_code == 0
    assert next(line for line in logs() if line["message"] == "scheduler started")["jobs"] == [
        "outbox_relay",
        "cleanup",
    ]


def test_the_settings_of_a_deployed_stage_are_its_own__and_the_applications_too(
    runtime: Runtime, told_once_started: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def from_stack(stage: str, *kinds: type) -> tuple[Runtime, Deployment]:
        asked.append((stage, *kinds))
        return runtime, Deployment(stage=stage)

    monkeypatch.setattr(Runtime, "from_stack", from_stack)
    assert run("--stage", "prod").exit_code == 0
    assert asked == [("prod", AppSettings)]


def test_the_signals_are_given_back(environment: None, told_once_started: None, run: Run) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run()
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_outlives_its_grace_is_cut_off(
    environment: None, told_once_started: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    graces: list[float] = []
    stop = Scheduler.stop

    def too_short(scheduler: Scheduler, timeout: float) -> bool:
        graces.append(timeout)
        stop(scheduler, timeout)
        return False

    monkeypatch.setattr(Scheduler, "stop", too_short)
    monkeypatch.setattr(scheduling, "end_at_once", lambda: sys.exit(1))
    assert run().exit_code == 1
    assert graces == [25]


# Called wrongly


def refused(done: Result) -> str:
    """Answer the one line that says why."""
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


def test_an_unknown_application_is_refused(run: Run) -> None:
    assert refused(run("--application", "nowhere")).startswith("mailroom: there is no application 'nowhere' here")


def test_an_unknown_job_is_refused__and_the_known_ones_named(environment: None, run: Run) -> None:
    assert refused(run("--only", "nothing")) == (f"mailroom: there is no job 'nothing'; there is {', '.join(JOBS)}")


def test_missing_settings_are_all_named__and_the_other_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("MAILROOM_", "APP_"))]:
        monkeypatch.delenv(name)
    line = refused(run())
    assert all(Settings.variable(field) in line for field in Settings.model_fields)
    assert "name a deployed stage by --stage" in line


def test_a_stage_that_is_not_deployed_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def from_stack(stage: str, *_: type) -> None:
        raise NotDeployed(f"there is no stack of {stage}")

    monkeypatch.setattr(Runtime, "from_stack", from_stack)
    assert refused(run("--stage", "prod")) == "mailroom: there is no stack of prod"


def test_no_region_is_said_at_once__not_at_every_attempt(
    environment: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    clients.forget()
    assert "set AWS credentials and a region" in refused(run())


def test_without_the_client_of_its_broker_it_says_what_to_install__at_start(
    environment: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Settings.variable("publisher_url"), "kafka://broker.example/events")
    without("confluent_kafka", monkeypatch)
    assert "needs the module confluent_kafka: pip install 'mailroom[brokers]'" in refused(run())


def test_jobs_that_publish_nothing_need_no_client(
    environment: None, told_once_started: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(Settings.variable("publisher_url"), "kafka://broker.example/events")
    without("confluent_kafka", monkeypatch)
    assert run("--only", "cleanup").exit_code == 0


def test_without_apscheduler_it_says_what_to_install(
    environment: None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mailroom.scheduler")
    for name in [name for name in sys.modules if name.partition(".")[0] == "apscheduler"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "apscheduler", None)
    assert "pip install 'mailroom[cli,scheduler]'" in refused(run())
