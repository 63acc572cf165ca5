"""A function may do what was reviewed, action by action, and nothing else."""

from __future__ import annotations

import pytest

from mailroom.deployment import names_in, service_stack
from tests.infra.assembly import Assembly, id_in, listed
from tests.infra.conftest import ENVIRONMENT, Synth
from tests.infra.grants import REVIEWED, accept, difference, lines_of

WITHOUT_RESOURCES = {
    "dynamodb:ListStreams",
    "events:ListRuleNamesByTarget",
    "lambda:ListEventSourceMappings",
    "ses:GetIdentityVerificationAttributes",
    "xray:PutTelemetryRecords",
    "xray:PutTraceSegments",
}


def test_functions_may_do_what_was_reviewed__and_nothing_else(prod: Assembly, pytestconfig: pytest.Config) -> None:
    # Not of the stage `local`: what it grants besides is for the emulator's ways, and opens nothing on AWS.
    lines = lines_of(prod, account=str(ENVIRONMENT.account), region=str(ENVIRONMENT.region))
    if pytestconfig.getoption("--accept-grants", default=False):
        accept(lines)
    changed = difference(lines)
    if changed:
        told = "\n".join(changed)
        pytest.fail(
            f"the template does not grant what {REVIEWED.name} says (+ granted now, - no longer):\n{told}\n"
            "Review each line. `make grants` accepts them.",
            pytrace=False,
        )


def test_a_policy_allows_without_exceptions__so_that_its_lines_say_all(prod: Assembly) -> None:
    for policy in prod.of_type("IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            assert set(statement) - {"Condition"} == {"Action", "Effect", "Resource"}
            assert statement["Effect"] == "Allow"


@pytest.mark.parametrize("name", ["prod", "dev"])
def test_an_email_may_be_sent_from_the_stages_address_alone(synth: Synth, name: str) -> None:
    assembly = synth(name)
    sending = [
        (function, statement.get("Condition"))
        for function in assembly.deployment["functions"]
        for statement in assembly.statements(assembly.function(function))
        if "ses:SendEmail" in listed(statement["Action"])
    ]
    only = {"StringEquals": {"ses:FromAddress": "sender@example.com"}}
    assert sending == [("confirmations", only), ("notifications", only)]


def test_nobody_puts_leases_or_records__nor_deletes_what_stays(prod: Assembly) -> None:
    """A put would start a fencing token or a count of attempts again.

    The operators' function puts the record of a message that has none, under that condition.
    """
    for name in prod.deployment["functions"]:
        grants = prod.grants(prod.function(name))
        assert "dynamodb:PutItem" not in grants.get("table/leases", ())
        assert "dynamodb:PutItem" not in grants.get("table/idempotency", ()) or name == "operations"
        assert "dynamodb:DeleteItem" not in grants.get("table/leases", ())
        assert "dynamodb:DeleteItem" not in grants.get("table/sagas", ()) or name == "cleanup"


def test_the_relay_alone_writes_rows_in_batches(prod: Assembly) -> None:
    for name in prod.deployment["functions"]:
        granted = {
            table
            for table, actions in prod.grants(prod.function(name)).items()
            if {"dynamodb:BatchWriteItem", "dynamodb:PartiQLInsert"} & actions
        }
        assert granted == ({"table/outbox"} if name in ("relay", "outbox_relay") else set()), name


def test_the_clean_up_may_read_and_delete__and_write_nothing(prod: Assembly) -> None:
    grants = prod.grants(prod.function("cleanup"))
    assert {table: actions for table, actions in grants.items() if table.startswith("table/")} == {
        "table/idempotency": {"dynamodb:DeleteItem", "dynamodb:Scan"},
        "table/leases": {"dynamodb:UpdateItem"},
        "table/outbox": {"dynamodb:DeleteItem", "dynamodb:Query"},
        "table/sagas": {"dynamodb:DeleteItem", "dynamodb:Scan"},
    }


def test_nothing_grants_a_pattern_of_actions(prod: Assembly) -> None:
    for name in prod.deployment["functions"]:
        for actions in prod.grants(prod.function(name)).values():
            assert not [each for each in actions if "*" in each]


def test_no_grant_covers_every_resource__where_actions_know_resources(prod: Assembly) -> None:
    for name in prod.deployment["functions"]:
        assert prod.grants(prod.function(name)).get("*", set()) <= WITHOUT_RESOURCES


def test_every_function_has_a_role_of_its_own__which_lambda_alone_takes_on(prod: Assembly) -> None:
    roles = [id_in(each["Properties"]["Role"]) for each in prod.of_type("Lambda::Function").values()]
    assert sorted(roles) == sorted(prod.of_type("IAM::Role"))
    for role in roles:
        (statement,) = prod.properties(role)["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": "lambda.amazonaws.com"}


def test_a_role_has_one_policy_of_its_own__and_nothing_managed_or_inline(prod: Assembly) -> None:
    policies = [listed(each["Properties"]["Roles"]) for each in prod.of_type("IAM::Policy").values()]
    assert sorted(id_in(role) for roles in policies for role in roles) == sorted(prod.of_type("IAM::Role"))
    assert all(len(roles) == 1 for roles in policies)
    for role in prod.of_type("IAM::Role").values():
        assert set(role["Properties"]) == {"AssumeRolePolicyDocument"}
    assert not prod.of_type("IAM::ManagedPolicy") | prod.of_type("IAM::RolePolicy")


@pytest.mark.parametrize("stage", ["prod", "production", "a" * 20])
def test_a_pattern_of_names_is_short_enough_for_names_that_cloudformation_shortens(stage: str) -> None:
    pattern = names_in(stage).removesuffix("*")
    assert len(pattern) <= 24
    assert service_stack(stage).startswith(pattern)
    assert not service_stack(f"{stage[:9]}-x").startswith(pattern)


@pytest.mark.parametrize("name", ["dev", "prod"])
def test_queues_and_topics_refuse_plain_http__on_aws(synth: Synth, name: str) -> None:
    assembly = synth(name)
    for policy in (assembly.of_type("SQS::QueuePolicy") | assembly.of_type("SNS::TopicPolicy")).values():
        statements = policy["Properties"]["PolicyDocument"]["Statement"]
        refused = [each for each in statements if each["Effect"] == "Deny"]
        assert [each["Condition"] for each in refused] == [{"Bool": {"aws:SecureTransport": "false"}}]
        assert all(listed(each["Resource"]) for each in refused)
    assert len(assembly.of_type("SQS::QueuePolicy")) == len(assembly.of_type("SQS::Queue"))
