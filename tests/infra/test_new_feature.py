"""The measure of the house: a consumer or a job is one file, and everything around it comes from that file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.layout import ROOT
from tests.infra.assembly import Assembly, id_in

CONSUMER = '''
"""Count what owners create."""

from app.events import RepoCreated
from app.owners import Owner
from app.repos import Repo
from mailroom.consumer import consumer
from mailroom.unit_of_work import UnitOfWork


@consumer(on=RepoCreated, reads=[Repo], writes=[Owner], publishes=[RepoCreated], timeout=45, max_concurrency=3)
def counts(event: RepoCreated, work: UnitOfWork) -> None:
    """Count one."""
'''

JOB = '''
"""Remove repositories that nobody owns."""

from app.repos import Repo
from mailroom.job import JobContext, job
from mailroom.schedule import Cron


@job(schedule=Cron(minute=30, hour=4, day="MON"), scans=[Repo], timeout=120)
def purge_repos(work: JobContext) -> None:
    """Remove them."""
'''


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project."""
    house = tmp_path_factory.mktemp("house")
    for folder in ("infra", "functions", "layers/mailroom", "layers/app"):
        shutil.copytree(ROOT / folder, house / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("app.py", "cdk.json"):
        shutil.copy(ROOT / file, house / file)
    (house / "layers/dependencies/aws/python").mkdir(parents=True)
    return house


def synth(house: Path) -> subprocess.CompletedProcess[str]:
    context = {**json.loads((house / "cdk.json").read_text())["context"], "stage": "dev"}
    packages = (house / "layers/mailroom/python", house / "layers/app/python", house)
    return subprocess.run(
        [sys.executable, "-P", "app.py"],
        cwd=house,
        env={
            "PYTHONPATH": ":".join(map(str, packages)),
            "JSII_NODE": os.environ["JSII_NODE"],
            "CDK_OUTDIR": str(house / "cdk.out"),
            "CDK_VALIDATION": "false",  # CDK's own check of the templates takes a third of a synth
            "CDK_CONTEXT_JSON": json.dumps(context),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def assembly(house: Path) -> Assembly:
    """The copy with two files more, synthesized."""
    (house / "layers/app/python/app/consumers/counts.py").write_text(CONSUMER)
    (house / "layers/app/python/app/jobs/purge_repos.py").write_text(JOB)
    done = synth(house)
    assert done.returncode == 0, done.stderr
    return Assembly(folder=house / "cdk.out", prefix="mailroom-dev")


def table_grants(assembly: Assembly, function: str) -> dict[str, set[str]]:
    return {name: each for name, each in assembly.grants(function).items() if name.startswith("table/")}


def test_a_file_makes_a_consumer__with_function_queue_rule_and_dead_letters(assembly: Assembly) -> None:
    function = assembly.function_running("app.consumers.counts:counts")
    mapping = assembly.mapping_of(function)
    queue = id_in(mapping["EventSourceArn"])
    rule = assembly.rule_into(queue)

    assert assembly.properties(function)["Timeout"] == 45
    assert assembly.properties(queue)["VisibilityTimeout"] == 6 * 45
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 3}
    assert rule["EventPattern"]["detail-type"] == ["repo.created"]
    for dead in (assembly.dead_letters_of(queue), id_in(rule["Targets"][0]["DeadLetterConfig"]["Arn"])):
        assert set(assembly.alarms_on(dead)) == {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"}
    assert assembly.alarms_on(queue) == ["ApproximateAgeOfOldestMessage"]
    assert set(assembly.alarms_on(function)) == {"Errors", "Throttles"}


def test_a_consumers_file_grants_what_it_declares(assembly: Assembly) -> None:
    function = assembly.function_running("app.consumers.counts:counts")
    assert table_grants(assembly, function) == {
        "table/repos": {"dynamodb:ConditionCheckItem", "dynamodb:GetItem"},
        "table/owners": {"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"},
        "table/outbox": {"dynamodb:PutItem"},
        "table/idempotency": {"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:UpdateItem"},
        "table/breakers": {"dynamodb:UpdateItem"},
    }


def test_a_file_makes_a_job__with_function_rule_and_dead_letters(assembly: Assembly) -> None:
    function = assembly.function_running("app.jobs.purge_repos:purge_repos")
    rule = assembly.rule_into(function)

    assert assembly.properties(function)["Timeout"] == 120
    assert rule["ScheduleExpression"] == "cron(30 4 ? * MON *)"
    dead = id_in(rule["Targets"][0]["DeadLetterConfig"]["Arn"])
    assert set(assembly.alarms_on(dead)) == {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"}
    assert set(assembly.alarms_on(function)) == {"Errors", "Throttles"}
    assert table_grants(assembly, function) == {
        "table/repos": {"dynamodb:Scan"},
        "table/leases": {"dynamodb:UpdateItem"},
    }


def test_the_stack_tells_of_both(assembly: Assembly) -> None:
    assert {"counts", "purge_repos"} <= set(assembly.deployment["functions"])
    assert {
        "counts", "counts-dead", "counts-undelivered", "purge_repos-dead", "purge_repos-undelivered",
    } <= set(assembly.deployment["queues"])  # fmt: skip


def test_a_wrong_schedule_fails_synth__and_names_file_and_field(house: Path) -> None:
    wrong = house / "layers/app/python/app/jobs/never.py"
    wrong.write_text(JOB.replace("hour=4", "hour=25").replace("purge_repos", "never"))
    try:
        done = synth(house)
    finally:
        wrong.unlink()
    assert done.returncode != 0
    assert str(wrong) in done.stderr
    assert "hour: 25 is not within 0-23" in done.stderr
