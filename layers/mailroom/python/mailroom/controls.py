"""What starts a function, and its switch: a consumer's or the relay's event source mappings, a job's schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from botocore.exceptions import ClientError

from mailroom import clients
from mailroom.breaker import hold, release
from mailroom.deployment import Deployment, names_in
from mailroom.needs import Need

if TYPE_CHECKING:
    from types_boto3_events.type_defs import DescribeRuleResponseTypeDef
    from types_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef

    from mailroom.runtime import Runtime

RELAY = "relay"
"""The function that new mail in the outbox wakes; the sweep is a job of its own, `outbox_relay`."""

_OFF = frozenset({"Disabled", "Disabling"})
"""https://docs.aws.amazon.com/lambda/latest/api/API_EventSourceMappingConfiguration.html"""

PartKind = Literal["consumer", "job", "relay"]


class UnknownPart(LookupError):
    """Nothing of this name can be paused; the message lists what can be."""


class NothingToSwitch(LookupError):
    """The part is deployed, but nothing starts it: no event source mapping, no schedule."""


class ChangingNow(Exception):
    """Lambda is applying an earlier change to the mapping."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a part is started.

    Parameters
    ----------
    enabled
        Whether it is; False also if nothing starts it at all.
    schedule
        A job's EventBridge expression, in UTC.
    """

    enabled: bool
    schedule: str | None = None


@dataclass(frozen=True, slots=True)
class Switched:
    """What switching a part came to.

    Parameters
    ----------
    changed
        False if it was so already.
    """

    name: str
    kind: PartKind
    enabled: bool
    changed: bool

    def to_dict(self) -> dict[str, Any]:
        """Answer it as JSON values."""
        return asdict(self)


def parts(deployment: Deployment) -> dict[str, PartKind]:
    """Answer what can be paused: every consumer, every job and the relay."""
    found: dict[str, PartKind] = dict.fromkeys(deployment.consumers, "consumer")
    found.update(dict.fromkeys(deployment.jobs, "job"))
    if RELAY in deployment.functions:
        found[RELAY] = "relay"
    return found


def start_of(deployment: Deployment, name: str) -> Start:
    """Answer how a part is started.

    Raises
    ------
    UnknownPart
        If there is no such part.
    """
    if _kind_of(deployment, name) == "job":
        rules = list(_rules(deployment, name))
        enabled = bool(rules) and all(_is_on(rule) for rule in rules)
        return Start(enabled, ", ".join(rule["ScheduleExpression"] for rule in rules) or None)
    mappings = list(_mappings(deployment, name))
    return Start(bool(mappings) and all(each["State"] not in _OFF for each in mappings))


def switch(deployment: Deployment, name: str, *, enabled: bool) -> Switched:
    """Pause or resume a part; harmless if it is so already.

    Raises
    ------
    UnknownPart
        If there is no such part.
    NothingToSwitch
        If nothing starts it.
    ChangingNow
        If Lambda is at work on an earlier change.
    """
    kind = _kind_of(deployment, name)
    if kind == "consumer":
        return Switched(name, kind, enabled, changed=_switch_consumer(deployment, name, enabled))
    change = _switch_rules if kind == "job" else _switch_mappings
    return Switched(name, kind, enabled, changed=change(deployment, name, enabled))


def _switch_consumer(deployment: Deployment, name: str, enabled: bool) -> bool:
    """Switch a consumer for an operator: written down first, so that the job `breakers` makes and keeps it so."""
    if enabled:
        release(name)
    else:
        hold(name)
    return _switch_mappings(deployment, name, enabled)


class Controls:
    """The switch that pauses consumers' queues for a while, as the job `breakers` uses it. It is a port."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Return the rights to find a function's mappings and to switch them."""
        functions = f"arn:*:lambda:*:*:function:{names_in(runtime.settings.stage)}"
        return (
            Need(("lambda:ListEventSourceMappings",), "*", why_many="this action knows no resources"),
            Need(
                ("lambda:UpdateEventSourceMapping",),
                "lambda:event-source-mapping:*",
                why_many="AWS makes up the ids of mappings; only those of the stage's own functions may be switched",
                conditions={"ArnLike": {"lambda:FunctionArn": functions}},
            ),
        )

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Switch what is in the stage's deployment."""
        return cls(runtime.use(Deployment))

    def switch(self, consumer: str, *, enabled: bool) -> None:
        """Let a consumer's queue be read, or not; harmless if it is so already.

        Raises
        ------
        ChangingNow
            If Lambda is at work on an earlier change.
        """
        if consumer in self._deployment.functions:
            _switch_mappings(self._deployment, consumer, enabled)


def _kind_of(deployment: Deployment, name: str) -> PartKind:
    known = parts(deployment)
    if name not in known:
        raise UnknownPart(f"nothing is called {name!r} that can be paused; there are: {', '.join(sorted(known))}")
    return known[name]


def _switch_mappings(deployment: Deployment, name: str, enabled: bool) -> bool:
    mappings = list(_mappings(deployment, name))
    if not mappings:
        raise NothingToSwitch(f"{name} has no event source mapping: deploy the stage again")
    others = [each for each in mappings if (each["State"] not in _OFF) != enabled]
    for each in others:
        try:
            clients.functions().update_event_source_mapping(UUID=each["UUID"], Enabled=enabled)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceInUseException":
                raise
            raise ChangingNow(f"{name} is being changed at this moment: try again in a minute") from error
    return bool(others)


def _switch_rules(deployment: Deployment, name: str, enabled: bool) -> bool:
    rules = list(_rules(deployment, name))
    if not rules:
        raise NothingToSwitch(f"{name} has no schedule: deploy the stage again")
    others = [each for each in rules if _is_on(each) != enabled]
    for each in others:
        if enabled:
            clients.events().enable_rule(Name=each["Name"])
        else:
            clients.events().disable_rule(Name=each["Name"])
    return bool(others)


def _mappings(deployment: Deployment, name: str) -> Iterator[EventSourceMappingConfigurationTypeDef]:
    more: Any = {}
    while True:
        answer = clients.functions().list_event_source_mappings(FunctionName=deployment.functions[name], **more)
        yield from answer["EventSourceMappings"]
        if not answer.get("NextMarker"):
            return
        more = {"Marker": answer["NextMarker"]}


def _rules(deployment: Deployment, name: str) -> Iterator[DescribeRuleResponseTypeDef]:
    """Answer the schedules that start a function: rules of the default bus, since others know no schedules."""
    function = clients.functions().get_function_configuration(FunctionName=deployment.functions[name])
    more: Any = {}
    while True:
        answer = clients.events().list_rule_names_by_target(TargetArn=function["FunctionArn"], **more)
        for rule_name in answer["RuleNames"]:
            rule = clients.events().describe_rule(Name=rule_name)
            if rule.get("ScheduleExpression"):
                yield rule
        if not answer.get("NextToken"):
            return
        more = {"NextToken": answer["NextToken"]}


def _is_on(rule: DescribeRuleResponseTypeDef) -> bool:
    return rule["State"] != "DISABLED"
