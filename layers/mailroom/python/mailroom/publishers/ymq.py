"""Delivery to a queue of Yandex Message Queue: SQS's protocol at an endpoint, a region and with keys of its own.

Limits: https://yandex.cloud/en/docs/message-queue/concepts/limits
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from mailroom import clients
from mailroom.needs import Need
from mailroom.publishers.place import Place, Server
from mailroom.publishers.publisher import Limits
from mailroom.publishers.secret import read_secret, secret_need
from mailroom.publishers.sqs import SqsPublisher
from mailroom.sources.source import MAX_BATCH

if TYPE_CHECKING:
    from types_boto3_sqs import SQSClient

    from mailroom.runtime import Runtime

KEY_ID, KEY = "access_key_id", "secret_access_key"
"""What the secret holds: a static access key of a service account with the role `ymq.writer`.
https://yandex.cloud/en/docs/iam/operations/authentication/manage-access-keys"""

_REGION = "ru-central1"
_MAX_BYTES = 262_144
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class YmqPublisher(SqsPublisher):
    """Publishes to one queue, by keys out of a secret; they are read again once the queue refuses them."""

    limits: ClassVar = Limits(entries=MAX_BATCH, entry_bytes=_MAX_BYTES, call_bytes=_MAX_BYTES)

    @classmethod
    def check_at(cls, place: Place) -> None:
        """See that the place is a queue's URL with the name of a secret."""
        _server(place)

    @classmethod
    def needs_at(cls, place: Place) -> tuple[Need, ...]:
        """Answer what reading the keys needs: the queue itself knows no roles of AWS."""
        return (secret_need(_server(place).options["secret"]),)

    @classmethod
    def at(cls, place: Place, runtime: Runtime) -> Self:
        """Make the publisher for the queue of this URL."""
        server = _server(place)
        ((host, port),) = server.hosts
        # Without encryption to this machine alone, as tests do: the keys sign, but whoever reads along has the events.
        scheme = "http" if host in _LOOPBACK else "https"
        endpoint = f"{scheme}://{host}:{port}"
        url = f"{endpoint}/{server.path}"
        remedy = f"put keys that may write to it into the secret {server.options['secret']}"
        after = runtime.timings.unroutable_after
        return cls(lambda: (_client(endpoint, server), url), name=url, remedy=remedy, refused_after=after)


def _server(place: Place) -> Server:
    server = place.server(port=443, needs=("secret",), may_have=("region",))
    if not server.path.strip("/"):
        raise place.wrong("it names no queue: write what stands in the queue's URL, without https://")
    return server


def _client(endpoint: str, server: Server) -> SQSClient:
    keys = read_secret(server.options["secret"], KEY_ID, KEY)
    return clients.sqs_elsewhere(
        endpoint, region=server.options.get("region", _REGION), key_id=keys[KEY_ID], key=keys[KEY]
    )
