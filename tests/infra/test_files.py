"""The bucket of reports: private, encrypted, swept by itself, and open to two functions a little."""

from __future__ import annotations

from typing import Any

import pytest

from app.consumers.reports import reports
from infra.api import API
from mailroom.timings import DAY, timings_of
from tests.infra.assembly import Assembly, id_in, listed
from tests.infra.conftest import Synth


def bucket(assembly: Assembly) -> tuple[str, dict[str, Any]]:
    ((name, each),) = assembly.of_type("S3::Bucket").items()
    return name, dict(each["Properties"])


def test_the_bucket_is_nobodys_but_ours(prod: Assembly) -> None:
    _, properties = bucket(prod)
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    (ownership,) = properties["OwnershipControls"]["Rules"]
    assert ownership == {"ObjectOwnership": "BucketOwnerEnforced"}
    (encryption,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption == {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    assert "BucketName" not in properties


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_the_bucket_refuses_plain_http__on_aws(synth: Synth, name: str) -> None:
    (policy,) = synth(name).of_type("S3::BucketPolicy").values()
    (denied,) = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
    assert (denied["Action"], denied["Condition"]) == ("s3:*", {"Bool": {"aws:SecureTransport": "false"}})


def test_files_outlive_the_rows_that_lead_to_them__and_unfinished_parts_do_not(prod: Assembly) -> None:
    _, properties = bucket(prod)
    (rule,) = properties["LifecycleConfiguration"]["Rules"]
    assert (rule["Prefix"], rule["Status"]) == ("reports/", "Enabled")
    assert rule["ExpirationInDays"] * DAY >= timings_of("prod").file_life + DAY
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


@pytest.mark.parametrize(("name", "kept"), [("local", False), ("dev", False), ("prod", True)])
def test_files_outlive_their_stack__in_production_alone(synth: Synth, name: str, kept: bool) -> None:
    (each,) = synth(name).of_type("S3::Bucket").values()
    assert (each["DeletionPolicy"], each["UpdateReplacePolicy"]) == (("Retain", "Retain") if kept else ("Delete",) * 2)


def test_one_function_writes_files__another_reads_them__nobody_lists_or_deletes(prod: Assembly) -> None:
    name, _ = bucket(prod)
    found = {
        function: {
            resource: actions
            for resource, actions in prod.grants(prod.function(function)).items()
            if any(action.startswith("s3:") for action in actions)
        }
        for function in prod.deployment["functions"]
    }
    files = f"arn:${{AWS::Partition}}:s3:::${{{name}}}/reports/*"
    assert {function: each for function, each in found.items() if each} == {
        API: {files: {"s3:GetObject"}},
        reports.name: {files: {"s3:AbortMultipartUpload", "s3:PutObject"}},
    }


def test_every_function_knows_the_bucket(prod: Assembly) -> None:
    name, _ = bucket(prod)
    variables = prod.properties(prod.function(reports.name))["Environment"]["Variables"]
    assert id_in(variables["APP_REPORTS_BUCKET"]) == name


def test_a_report_has_a_quarter_of_an_hour__and_its_message_stays_hidden_for_six(prod: Assembly) -> None:
    function = prod.function(reports.name)
    mapping = prod.mapping_of(function)
    queue = prod.properties(id_in(mapping["EventSourceArn"]))
    assert (prod.properties(function)["Timeout"], queue["VisibilityTimeout"]) == (900, 6 * 900)
    assert mapping["BatchSize"] == 1
    assert listed(mapping["FunctionResponseTypes"]) == ["ReportBatchItemFailures"]
