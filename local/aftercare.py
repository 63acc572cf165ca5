"""Completes a deployment where the emulator falls short of AWS: expiry, the e-mail sender, and a few permissions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from local.stack import LocalStack

_CHECKED_AGAINST_ANOTHER_RESOURCE = {"events:DescribeEventBus", "events:DescribeRule", "ses:SendEmail"}
"""The emulator holds these against a rule, against a rule's ARN with the name of the default bus in it, and against no
resource at all, where AWS takes the bus, the rule and the identity."""

_CHECKED_UNDER_ANOTHER_NAME = {"sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:SendMessage"}
"""To do these in a batch the emulator asks for a right that AWS does not know, such as `sqs:SendMessageBatch`:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-api-permissions-reference.html"""

_WIDENED = "WidenedForTheEmulator"


def complete(stack: LocalStack, assembly: Path) -> None:
    """Do what is missing after a deploy of the templates in `assembly`; doing it again is harmless."""
    _switch_on_expiry(stack, assembly)
    _verify_sender(stack)
    _widen_grants(stack)


def _switch_on_expiry(stack: LocalStack, assembly: Path) -> None:
    """Set the TTL that each template asks for: CloudFormation in the emulator drops it without a word."""
    dynamodb = stack.client("dynamodb")
    for table, attribute in _expiring_tables(stack, assembly):
        now = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
        if now["TimeToLiveStatus"] != "ENABLED":
            dynamodb.update_time_to_live(
                TableName=table,
                TimeToLiveSpecification={"Enabled": True, "AttributeName": attribute},
            )


def _expiring_tables(stack: LocalStack, assembly: Path) -> Iterator[tuple[str, str]]:
    cloudformation = stack.client("cloudformation")
    for template in assembly.glob("*.template.json"):
        name = template.name.removesuffix(".template.json")
        for logical_id, resource in json.loads(template.read_text())["Resources"].items():
            expiry = resource.get("Properties", {}).get("TimeToLiveSpecification")
            if expiry and expiry.get("Enabled", True):
                found = cloudformation.describe_stack_resource(StackName=name, LogicalResourceId=logical_id)
                yield found["StackResourceDetail"]["PhysicalResourceId"], expiry["AttributeName"]


def _verify_sender(stack: LocalStack) -> None:
    """Let the application send e-mail: SES refuses a sender that nobody verified."""
    if sender := stack.settings.get("APP_EMAIL_SENDER"):
        stack.client("ses").verify_email_identity(EmailAddress=sender)


def _widen_grants(stack: LocalStack) -> None:
    """Let the roles that have these actions have them as the emulator checks them; the others still go without."""
    iam = stack.client("iam")
    for page in iam.get_paginator("list_roles").paginate():
        for role in page["Roles"]:
            if wider := [each for one in _statements(iam, role["RoleName"]) for each in _widened(one)]:
                iam.put_role_policy(
                    RoleName=role["RoleName"],
                    PolicyName=_WIDENED,
                    PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": wider}),
                )


def _widened(statement: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Answer what the emulator wants beside a statement."""
    action = statement["Action"]
    actions = {action} if isinstance(action, str) else set(action)
    if elsewhere := sorted(actions & _CHECKED_AGAINST_ANOTHER_RESOURCE):
        yield {"Effect": "Allow", "Action": elsewhere, "Resource": "*"}
    if batched := sorted(actions & _CHECKED_UNDER_ANOTHER_NAME):
        yield {"Effect": "Allow", "Action": [f"{each}Batch" for each in batched], "Resource": statement["Resource"]}


def _statements(iam: Any, role: str) -> Iterator[dict[str, Any]]:
    """Answer the statements of a role's own policies, without those made here."""
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        if name != _WIDENED:
            yield from iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"]
