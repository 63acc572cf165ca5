"""`mailroom scheduler` as processes: real signals, the deployed stage's tables, and two that fire the same job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.account import CREDENTIALS, REGION
from local.stack import LocalStack
from local.waiting import eventually
from local.workspace import LOCAL

COMMAND = str(Path(sys.executable).parent / "mailroom")
JOB = "outbox_relay"
BOUND = 30
"""Seconds after which what should have happened has not."""

Start = Callable[..., "SchedulerProcess"]


class SchedulerProcess:
    """A process of `mailroom scheduler` with one job, and the log that it writes."""

    def __init__(self, folder: Path, environment: dict[str, str], *arguments: str) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [COMMAND, "scheduler", "--only", JOB, *arguments]
            self.process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The log so far; whole lines only."""
        whole, _, _ = self._out.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def said(self, *messages: str) -> bool:
        """Answer whether the log says each of these."""
        assert self.process.poll() is None, self._err.read_text()
        return set(messages) <= {line.get("message") for line in self.lines}

    def ended(self, number: signal.Signals) -> tuple[int, str]:
        """Send it a signal; answer its exit code and what it had to complain about."""
        self.process.send_signal(number)
        return self.process.wait(timeout=BOUND), self._err.read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes that are ended with the test at the latest."""
    started: list[SchedulerProcess] = []

    def begin(environment: dict[str, str], *arguments: str) -> SchedulerProcess:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(SchedulerProcess(folder, {**os.environ, **environment}, *arguments))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()


def test_two_schedulers_run_a_job_as_one__and_end_when_they_are_told_to(start: Start, stack: LocalStack) -> None:
    place = os.environ.get("MAILROOM_LOCAL_JSON", str(LOCAL.description.resolve()))
    of_the_stage = start({"MAILROOM_LOCAL_JSON": place}, "--stage", "local")
    reached_by = {**CREDENTIALS, "AWS_ENDPOINT_URL": stack.endpoint_url, "AWS_REGION": REGION}
    of_the_environment = start({**stack.settings, **reached_by})
    both = (of_the_stage, of_the_environment)

    for each in both:
        eventually(lambda each=each: each.said("scheduler started"), within=BOUND, what="it started")
    eventually(
        lambda: any(each.said("job completed") for each in both) and any(each.said("job skipped") for each in both),
        within=BOUND,
        what="one ran it, and the other did not",
    )
    assert of_the_stage.ended(signal.SIGTERM) == (0, "")
    assert of_the_environment.ended(signal.SIGINT) == (0, "")

    for each in both:
        told = [line for line in each.lines if str(line.get("message")).startswith("scheduler")]
        assert [(line["message"], line["jobs"]) for line in told] == [
            ("scheduler started", [JOB]),
            ("scheduler stopped", [JOB]),
        ]
        begun = [line["run_id"] for line in each.lines if line.get("message") == "job started"]
        ended = [line["run_id"] for line in each.lines if line.get("message") == "job completed"]
        assert begun == ended
