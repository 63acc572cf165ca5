"""The deployed local stack as its users need to know it."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from local.account import ACCOUNT, REGION, session

if TYPE_CHECKING:
    from types_boto3_dynamodb.service_resource import Table


@dataclass(frozen=True)
class LocalStack:
    """Where to call it, and the deployed name (queues: the URL) of everything by its short name."""

    api_url: str
    endpoint_url: str
    region: str
    account: str
    settings: dict[str, str]
    tables: dict[str, str]
    queues: dict[str, str]
    functions: dict[str, str]
    buses: dict[str, str]

    @classmethod
    def deployed_at(cls, endpoint_url: str, output: dict[str, Any]) -> "LocalStack":
        """Build it from the value of the service stack's output `Deployment`."""
        return cls(
            # The URL that CloudFormation knows has AWS's host name, which leads nowhere from here.
            api_url=f"{endpoint_url}/_aws/execute-api/{output['api_id']}/$default",
            endpoint_url=endpoint_url,
            region=REGION,
            account=ACCOUNT,
            **{name: output[name] for name in ("settings", "tables", "queues", "functions", "buses")},
        )

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
