"""The deployed local stack as its users need to know it."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from local.account import ACCOUNT, REGION, session
from mailroom.deployment import Deployment

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table


@dataclass(frozen=True, kw_only=True)
class LocalStack(Deployment):
    """A deployment in the emulator, with URLs that lead there."""

    endpoint_url: str
    region: str = REGION
    account: str = ACCOUNT

    @classmethod
    def deployed_at(cls, endpoint_url: str, deployment: Deployment) -> "LocalStack":
        """Build it from what the service stack tells of itself."""
        # The URLs that CloudFormation knows have AWS's host name, which leads nowhere from here.
        urls = {
            "api_url": f"{endpoint_url}/_aws/execute-api/{deployment.api_id}/$default",
            "ops_url": f"{endpoint_url}/_aws/execute-api/{deployment.ops_id}/$default",
        }
        return cls(**{**asdict(deployment), **urls, "endpoint_url": endpoint_url})

    @classmethod
    def read(cls, path: Path) -> "LocalStack":
        """Read what `write` wrote; raises FileNotFoundError when no local stack was deployed."""
        return cls(**json.loads(path.read_text()))

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    def client(self, service: str) -> Any:
        """Make a boto3 client that calls the emulator."""
        return self._session.client(service, endpoint_url=self.endpoint_url)  # type: ignore[call-overload]

    def table(self, short_name: str) -> "Table":
        """Return a table by its short name, such as `outbox`."""
        dynamodb = self._session.resource("dynamodb", endpoint_url=self.endpoint_url)
        return dynamodb.Table(self.tables[short_name])

    @cached_property
    def _session(self) -> boto3.Session:
        return session()
