"""What code declares becomes IAM here, action by action."""

from __future__ import annotations

from typing import Any

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from pynamodb.indexes import Index

from infra.rules import do_otherwise
from infra.surroundings import Surroundings
from mailroom.needs import Access, Need
from mailroom.row import Row
from mailroom.unit_of_work import NEEDS_TO_PUBLISH

_BUSES = "events:event-bus/"


def grant_access(role: iam.Role, access: Access, *, surroundings: Surroundings) -> None:
    """Allow what code declares, and nothing else."""
    of_ports = (need for port in access.uses for need in port.needs(surroundings.runtime))
    publishing = (NEEDS_TO_PUBLISH,) if access.publishes else ()
    for need in (*access.of_tables(), *publishing, *access.needs, *of_ports):
        if isinstance(need, Need):
            grant(role, need, surroundings=surroundings)


def grant(role: iam.Role, need: Need, *, surroundings: Surroundings) -> None:
    """Allow actions on a resource."""
    resources = [_arn(role, need.resource, surroundings)]
    if need.why_many is not None:
        finding = _as_rules_see(role, resources[0])
        do_otherwise(role, f"IAM5[Resource::{finding}]", because=need.why_many)
    actions, conditions = list(need.actions), need.conditions
    if not surroundings.stage.on_aws:
        # The emulator takes the bus that DescribeEventBus names for a rule of the default bus,
        if isinstance(need.resource, str) and need.resource.startswith(_BUSES):
            resources.append(_arn(role, need.resource.replace(_BUSES, "events:rule/default/"), surroundings))
        # asks for an action by the call's name, where AWS has one for both,
        actions += [f"{action}Batch" for action in actions if action == "sns:Publish"]
        # and knows nothing that a condition could ask for.
        conditions = None
    role.add_to_policy(iam.PolicyStatement(actions=actions, resources=resources, conditions=conditions))


def _arn(role: iam.Role, place: str | type[Row] | Index[Any], surroundings: Surroundings) -> str:
    if not isinstance(place, str):
        return surroundings.tables.arn(place)
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
