"""The templates keep the rules of CloudFormation and of cdk-nag."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_sqs as sqs

from app.consumers.notifications import notifications
from infra.layout import ROOT
from infra.monitoring import RUNBOOKS
from infra.stacks import add_stacks
from infra.stage import StageConfig
from tests import generated
from tests.infra.assembly import Assembly
from tests.infra.conftest import ENVIRONMENT, Synth

MAX_RESOURCES = 500
"""In a stack. https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
IGNORED = [
    "W3005",  # CDK's Function always depends on its role by name, besides referring to it
    "W6001",  # the output that describes the deployment is there to gather what the data stack exports
]
NAMES = {
    "DynamoDB::Table": "TableName",
    "SQS::Queue": "QueueName",
    "S3::Bucket": "BucketName",
    "Lambda::Function": "FunctionName",
    "IAM::Role": "RoleName",
    "SNS::Topic": "TopicName",
    "Events::Rule": "Name",
    "Logs::LogGroup": "LogGroupName",
    "CloudWatch::Alarm": "AlarmName",
    "Lambda::LayerVersion": "LayerName",
    "SecretsManager::Secret": "Name",
}


@pytest.mark.parametrize("name", generated.examples(few=["prod"], all=["local", "prod"]))
def test_cfn_lint_finds_nothing(synth: Synth, name: str) -> None:
    from cfnlint.api import lint  # noqa: PLC0415 - it reads the schema of every resource of AWS

    for template in synth(name).templates:
        found = lint(template.read_text(), config={"ignore_checks": IGNORED, "regions": ["eu-central-1"]})
        assert [f"{each.rule.id} {each.message}" for each in found] == []


def test_a_broken_rule_without_a_reason_fails_synth(app: App, stage: Callable[[str], StageConfig]) -> None:
    add_stacks(app, stage=stage("prod"), env=ENVIRONMENT)
    sqs.Queue(Stack(app, "careless"), "Queue")
    with pytest.raises(RuntimeError, match="AwsSolutions-SQS4"):
        app.synth()


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_no_rule_is_broken_without_a_reason(synth: Synth, name: str) -> None:
    report = json.loads((synth(name).folder / "validation-report.json").read_text())
    assert [each["violations"] for each in report["pluginReports"]] == []


@pytest.mark.parametrize(("kind", "name"), NAMES.items())
def test_nothing_has_a_physical_name(prod: Assembly, kind: str, name: str) -> None:
    assert not any(name in each.get("Properties", {}) for each in prod.of_type(kind).values())


def test_the_stacks_are_named_for_their_stage(prod: Assembly) -> None:
    assert [each.name for each in prod.templates] == [
        "mailroom-prod-data.template.json",
        "mailroom-prod-service.template.json",
    ]


def test_the_runbook_says_how_many_consumers_a_stack_holds(prod: Assembly) -> None:
    resources = prod.service["Resources"]
    of_one = sum(each.startswith(f"Consumers{notifications.name}") for each in resources)
    of_others = sum(not each.startswith("Consumers") for each in resources)
    runbook = " ".join((ROOT / RUNBOOKS).read_text().split())
    told = re.search(r"A service stack holds about (\d+) consumers: .* and each consumer has (\d+)\.", runbook)
    assert told
    assert tuple(map(int, told.groups())) == ((MAX_RESOURCES - of_others) // of_one, of_one)
