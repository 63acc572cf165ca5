"""What code declares becomes IAM here, action by action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam

from infra.rules import do_otherwise
from infra.surroundings import Surroundings
from mailroom.needs import READ_ACTIONS, SCAN_ACTIONS, WRITE_ACTIONS, Access, Need
from mailroom.outbox.table import OutboxRow
from mailroom.row import Row

RECORD_ACTIONS = (
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
)
"""What keeping idempotency records takes, for requests and for messages."""
LEASE_ACTIONS = (
    "dynamodb:ConditionCheckItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
)
"""What holding a lease takes, and committing under it. No delete: a lease's token must not start again."""
PUBLISH_ACTIONS = ("dynamodb:PutItem",)
"""What adding an event to the outbox takes."""
_ON_INDEXES = frozenset(("dynamodb:Query", "dynamodb:Scan"))
"""What the actions above can do with an index; the others know tables alone.
https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazondynamodb.html"""

_BUSES = "events:event-bus/"


def grant_access(role: iam.Role, access: Access, *, surroundings: Surroundings) -> None:
    """Allow what code declares, and nothing else."""
    for models, actions in (
        (access.reads, READ_ACTIONS),
        (access.writes, READ_ACTIONS + WRITE_ACTIONS),
        (access.scans, SCAN_ACTIONS),
        ((OutboxRow,) if access.publishes else (), PUBLISH_ACTIONS),
    ):
        for model in models:
            grant_table(role, model, actions, surroundings=surroundings)
    for port in access.uses:
        for need in port.needs(surroundings.runtime):
            if isinstance(need, Need):
                _grant_need(role, need, surroundings=surroundings)


def grant_table(role: iam.Role, model: type[Row], actions: Sequence[str], *, surroundings: Surroundings) -> None:
    """Allow actions on a model's table, and on its indexes those that indexes know."""
    table, *indexes = surroundings.tables.arns(model)
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=[table]))
    on_indexes = [action for action in actions if action in _ON_INDEXES]
    if indexes and on_indexes:
        role.add_to_policy(iam.PolicyStatement(actions=on_indexes, resources=indexes))


def _grant_need(role: iam.Role, need: Need, *, surroundings: Surroundings) -> None:
    resources = [_arn(role, need.resource)]
    if need.why_many is not None:
        finding = _as_rules_see(role, resources[0])
        do_otherwise(role, f"IAM5[Resource::{finding}]", because=need.why_many)
    actions = list(need.actions)
    if not surroundings.stage.on_aws:
        # The emulator takes the bus that DescribeEventBus names for a rule of the default bus,
        if need.resource.startswith(_BUSES):
            resources.append(_arn(role, need.resource.replace(_BUSES, "events:rule/default/")))
        # and asks for an action by the call's name, where AWS has one for both.
        actions += [f"{action}Batch" for action in actions if action == "sns:Publish"]
    role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources))


def _arn(role: iam.Role, place: str) -> str:
    service, _, resource = place.partition(":")
    if service == "arn" or not resource:  # a whole one, which at synth is a placeholder, or all of them
        return place
    nowhere = {"region": "", "account": ""} if service == "s3" else {}  # the names of buckets are the whole world's
    return Stack.of(role).format_arn(
        service=service, resource=resource, arn_format=ArnFormat.NO_RESOURCE_NAME, **nowhere
    )


def _as_rules_see(role: iam.Role, arn: str) -> str:
    resolved = Stack.of(role).resolve(arn)
    if isinstance(resolved, str):
        return resolved
    _, parts = resolved["Fn::Join"]
    return "".join(map(_part_as_rules_see, parts))


def _part_as_rules_see(part: Any) -> str:
    match part:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::ImportValue": name}:
            return str(name)
        case _:
            return str(part)
