"""What is deployed: names and addresses of a stage's parts, read from the outputs of its service stack."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from botocore.exceptions import ClientError

from mailroom import clients
from mailroom.needs import Need

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

SERVICE = "mailroom"
"""Names the stacks, the source of every event and the service in logs and metrics."""
OUTPUT = "Deployment"
"""The logical ids of the outputs begin so; each is a JSON object, and together they are the deployment.
One output holds 4,096 bytes, hence one for each function.
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"""
DEAD, UNDELIVERED = "-dead", "-undelivered"
"""How the short names of dead-letter queues end: what a function gave up on; what a rule could not deliver."""

MANY_QUEUES = "each consumer and each job has queues of its own, and CloudFormation names them"


class NotDeployed(Exception):
    """There is no deployment of the stage where the credentials and the region lead."""


def service_stack(stage: str) -> str:
    """Answer the name of a stage's service stack."""
    return f"{SERVICE}-{stage}-service"


def names_in(stage: str) -> str:
    """Answer the pattern of the names that CloudFormation gives to the parts of a stage's service stack.

    They begin with the stack's name, of which it keeps 24 characters when a name would get too long.
    """
    return f"{service_stack(stage)[:24]}*"


def data_stack(stage: str) -> str:
    """Answer the name of a stage's data stack."""
    return f"{SERVICE}-{stage}-data"


@dataclass(frozen=True, slots=True)
class Deployment:
    """The parts of a stage, each by its short name. It is a port: `uses=[Deployment]`.

    Parameters
    ----------
    queues
        URLs; a consumer's dead letters are in `<name>-dead`, what its rule could not deliver in `<name>-undelivered`.
    """

    stage: str
    api_id: str = ""
    api_url: str = ""
    ops_id: str = ""
    ops_url: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    buses: dict[str, str] = field(default_factory=dict)

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to read the stack's outputs."""
        stack = service_stack(runtime.settings.stage)
        return (
            Need(
                ("cloudformation:DescribeStacks",),
                f"cloudformation:stack/{stack}/*",
                why_many="a stack's ARN ends in an id that only its creation gives it",
            ),
        )

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Read this stage's deployment."""
        return cls.of(runtime.settings.stage)

    @classmethod
    def of(cls, stage: str) -> Self:
        """Read a stage's deployment.

        Raises
        ------
        NotDeployed
            If there is none here.
        """
        name = service_stack(stage)
        try:
            (stack,) = clients.cloudformation().describe_stacks(StackName=name)["Stacks"]
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationError":
                raise
            raise NotDeployed(f"there is no stack {name} in this account and region: deploy the stage first") from error
        return cls.from_outputs(
            stage, {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}
        )

    @classmethod
    def from_outputs(cls, stage: str, outputs: dict[str, str]) -> Self:
        """Put the parts together that the stack's outputs tell of."""
        whole: dict[str, Any] = {}
        for key, value in outputs.items():
            if key.startswith(OUTPUT):
                for name, part in json.loads(value).items():
                    whole[name] = {**whole.get(name, {}), **part} if isinstance(part, dict) else part
        return cls(stage=stage, **whole)

    @property
    def consumers(self) -> list[str]:
        """The names of the consumers: what has a queue that is no dead-letter queue."""
        return sorted(name for name in self.queues if not name.endswith((DEAD, UNDELIVERED)))

    @property
    def dead_letter_queues(self) -> dict[str, str]:
        """The URLs of every dead-letter queue by its short name."""
        return {name: url for name, url in sorted(self.queues.items()) if name.endswith((DEAD, UNDELIVERED))}

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs: functions with a queue for failed runs, but none to read."""
        return sorted(name for name in self.functions if f"{name}{DEAD}" in self.queues and name not in self.queues)


class Queues:
    """A look at the stage's queues. It is a port: `uses=[Queues]`."""

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        """Answer the right to ask a queue how full it is."""
        return (Need(("sqs:GetQueueAttributes",), f"sqs:{names_in(runtime.settings.stage)}", why_many=MANY_QUEUES),)

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Make one; the queues' URLs come from the deployment."""
        return cls()

    def depths(self, urls: Iterable[str]) -> dict[str, int]:
        """Answer how many messages each queue has: see `queue_depths`."""
        return queue_depths(urls)


def queue_depths(urls: Iterable[str]) -> dict[str, int]:
    """Answer how many messages each queue has, those in flight included, by URL."""
    names: Any = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    depths = {}
    for url in urls:
        attributes = clients.sqs().get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        depths[url] = sum(int(attributes[name]) for name in names)
    return depths
