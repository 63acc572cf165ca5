"""The jobs of docs/jobs.md: declared and run as they are printed there."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from app.owners import Owner
from app.repos import Repo
from mailroom.job import Job, JobEdge
from mailroom.runtime import Runtime
from mailroom.schedule import Cron, Every, Schedule
from mailroom.testing import LambdaContext
from tests.log_lines import Lines

DOCUMENT = (Path(__file__).parents[2] / "docs/jobs.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
SCHEDULES = re.findall(r"^\| `((?:Every|Cron)[^`]*)` \| `([^`]*)` \|", DOCUMENT, re.MULTILINE)

Declare = Callable[[int, str], Job]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Declare:
    """Makes a file of a block, and answers the job in it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(block: int, name: str) -> Job:
        (tmp_path / f"documented_{name}.py").write_text(BLOCKS[block])
        declared = getattr(importlib.import_module(f"documented_{name}"), name)
        assert isinstance(declared, Job)
        return declared

    return write


def test_the_first_job_runs_as_printed(declare: Declare, runtime: Runtime, logs: Lines) -> None:
    Owner("owner-1").save()
    Owner("owner-2", email="owner-2@example.com").save()
    JobEdge(declare(0, "find_silent_owners"), runtime).run(LambdaContext())
    assert [line["owners"] for line in logs() if line["message"] == "owners without an address"] == [1]


def test_the_long_job_goes_on_where_it_stopped(
    declare: Declare, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        Repo(f"repo-{number}", name="tool", owner_id=f"owner-{number}", created_at="2030-01-01T00:00:00.000Z").save()
    edge = JobEdge(declare(1, "add_owners"), runtime)
    seen = []
    for _ in range(3):
        edge.run(LambdaContext(remaining_ms=0))
        seen.append(len(list(Owner.scan())))
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(("written", "expression"), SCHEDULES)
def test_a_schedule_is_on_eventbridge_what_the_table_says(written: str, expression: str) -> None:
    schedule: Schedule = eval(written, {"Every": Every, "Cron": Cron})  # noqa: S307 - our own document
    assert schedule.to_eventbridge() == expression


def test_the_table_has_every_form() -> None:
    assert len(SCHEDULES) == 9
