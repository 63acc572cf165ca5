"""Synthesized stages as tests read them: every reference is written `${LogicalId}` or `${LogicalId.Attribute}`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mailroom.declarations import DECLARATION_VARIABLE
from mailroom.deployment import SERVICE, Deployment

Resource = dict[str, Any]


@dataclass(frozen=True)
class Assembly:
    """The two stacks of one stage."""

    folder: Path
    prefix: str
    warnings: tuple[str, ...] = ()
    """What CDK had to say at synth."""

    @property
    def templates(self) -> list[Path]:
        """The files."""
        return [self.folder / f"{self.prefix}-{stack}.template.json" for stack in ("data", "service")]

    @cached_property
    def data(self) -> dict[str, Any]:
        """The template of what holds data."""
        return self._read(self.templates[0])

    @cached_property
    def service(self) -> dict[str, Any]:
        """The template of what works on it."""
        return self._read(self.templates[1])

    @cached_property
    def deployment(self) -> dict[str, Any]:
        """What the service stack says of itself."""
        return asdict(Deployment.from_outputs(self.stage, self.outputs))

    @property
    def outputs(self) -> dict[str, str]:
        """The service stack's outputs, by logical id."""
        return {name: each["Value"] for name, each in self.service["Outputs"].items()}

    @property
    def stage(self) -> str:
        """The stage's name."""
        return self.prefix.removeprefix(f"{SERVICE}-")

    def of_type(self, kind: str) -> dict[str, Resource]:
        """Answer all resources of a type by logical id; the type is written without `AWS::`."""
        everything = {**self.data["Resources"], **self.service["Resources"]}
        return {name: each for name, each in everything.items() if each["Type"] == f"AWS::{kind}"}

    def properties(self, logical_id: str) -> dict[str, Any]:
        """Answer the properties of one resource."""
        everything = {**self.data["Resources"], **self.service["Resources"]}
        return dict(everything[logical_id]["Properties"])

    def table(self, short_name: str) -> str:
        """Answer the logical id of a table."""
        return id_in(self.deployment["tables"][short_name])

    def function(self, name: str) -> str:
        """Answer the logical id of a function."""
        return id_in(self.deployment["functions"][name])

    def queue(self, name: str) -> str:
        """Answer the logical id of a queue."""
        return id_in(self.deployment["queues"][name])

    def function_running(self, target: str) -> str:
        """Answer the function that runs a declaration."""
        return next(
            name
            for name, each in self.of_type("Lambda::Function").items()
            if each["Properties"]["Environment"]["Variables"].get(DECLARATION_VARIABLE) == target
        )

    def mapping_of(self, function: str) -> dict[str, Any]:
        """Answer the event source mapping that feeds a function."""
        return next(
            each["Properties"]
            for each in self.of_type("Lambda::EventSourceMapping").values()
            if id_in(each["Properties"]["FunctionName"]) == function
        )

    def dead_letters_of(self, queue: str) -> str:
        """Answer the queue that a queue gives up to."""
        return id_in(self.properties(queue)["RedrivePolicy"]["deadLetterTargetArn"])

    def rule_into(self, logical_id: str) -> dict[str, Any]:
        """Answer the rule that has a queue or a function for its target."""
        return next(
            each["Properties"]
            for each in self.of_type("Events::Rule").values()
            if logical_id in [id_in(target["Arn"]) for target in each["Properties"]["Targets"]]
        )

    def alarms_on(self, logical_id: str) -> list[str]:
        """Answer the metrics of a resource that have alarms."""
        return [
            each["Properties"]["MetricName"]
            for each in self.of_type("CloudWatch::Alarm").values()
            if logical_id in [id_in(one["Value"]) for one in each["Properties"].get("Dimensions", [])]
        ]

    def alarm(self, metric: str, logical_id: str | None = None) -> dict[str, Any]:
        """Answer the alarm on a metric of a resource, or on one without dimensions."""
        (alarm,) = (
            each["Properties"]
            for each in self.of_type("CloudWatch::Alarm").values()
            if each["Properties"]["MetricName"] == metric
            and [id_in(one["Value"]) for one in each["Properties"].get("Dimensions", [])]
            == [logical_id][: bool(logical_id)]
        )
        return alarm

    def grants(self, function: str) -> dict[str, set[str]]:
        """Answer what a function may do, action by action, by resource; tables are `table/<short name>`."""
        tables = {f"${{{id_in(ref)}.Arn}}": f"table/{name}" for name, ref in self.deployment["tables"].items()}
        found: dict[str, set[str]] = {}
        for statement in self.statements(function):
            for resource in listed(statement["Resource"]):
                found.setdefault(tables.get(resource, resource), set()).update(listed(statement["Action"]))
        return found

    def statements(self, function: str) -> Iterator[dict[str, Any]]:
        """Return the statements of a function's policy."""
        role = id_in(self.properties(function)["Role"])
        for policy in self.of_type("IAM::Policy").values():
            if role in map(id_in, policy["Properties"]["Roles"]):
                yield from policy["Properties"]["PolicyDocument"]["Statement"]

    def _read(self, path: Path) -> dict[str, Any]:
        exports = {}
        if path != self.templates[0]:
            outputs = self.data["Outputs"].values()
            exports = {each["Export"]["Name"]: each["Value"] for each in outputs}
        return dict(_flat(json.loads(path.read_text()), exports))


def id_in(reference: str) -> str:
    """Answer the logical id that a reference names."""
    return reference.removeprefix("${").removesuffix("}").split(".")[0]


def listed(value: Any) -> list[Any]:
    """Answer a list, also of what CloudFormation writes without one."""
    return value if isinstance(value, list) else [value]


def _flat(value: Any, exports: dict[str, str]) -> Any:
    if isinstance(value, list):
        return [_flat(each, exports) for each in value]
    match value:
        case {"Ref": name}:
            flat = f"${{{name}}}"
        case {"Fn::GetAtt": [name, attribute]}:
            flat = f"${{{name}.{attribute}}}"
        case {"Fn::ImportValue": name}:
            flat = exports[name]
        case {"Fn::Join": [separator, parts]}:
            flat = separator.join(_flat(part, exports) for part in parts)
        case dict():
            return {name: _flat(each, exports) for name, each in value.items()}
        case _:
            return value
    return flat
