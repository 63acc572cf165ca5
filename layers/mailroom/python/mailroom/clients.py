"""AWS clients: made once, on first use, with our time-outs, and with one hook on every call they make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from botocore.config import Config

from mailroom.timings import Timings

if TYPE_CHECKING:
    from types_boto3_cloudformation import CloudFormationClient
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_events import EventBridgeClient
    from types_boto3_lambda import LambdaClient
    from types_boto3_s3 import S3Client
    from types_boto3_secretsmanager import SecretsManagerClient
    from types_boto3_ses import SESClient
    from types_boto3_sns import SNSClient
    from types_boto3_sqs import SQSClient
    from types_boto3_sts import STSClient

_TIMINGS = Timings()
_CONFIG = Config(
    connect_timeout=_TIMINGS.connect_timeout,
    read_timeout=_TIMINGS.read_timeout,
    retries={"mode": "standard", "total_max_attempts": _TIMINGS.call_attempts},
    parameter_validation=False,  # our types are checked before we run; validating 25 rows costs more than sending them
    max_pool_connections=25,
)
_POLLING = _CONFIG.merge(
    # Who polls asks again anyway, and has to notice soon when it is told to end.
    Config(read_timeout=_TIMINGS.poll_wait + _TIMINGS.read_timeout, retries={"total_max_attempts": 1})
)
"""For calls that the other side answers only when there is something to tell."""
_ONCE = _CONFIG.merge(Config(retries={"total_max_attempts": 1}))
"""For calls that have to be through soon, and whose caller tries again by itself."""
_TRANSFERRING = _CONFIG.merge(
    # In some regions botocore would presign by the old signature, which new buckets and SSE refuse.
    Config(read_timeout=_TIMINGS.transfer_timeout, signature_version="s3v4")
)
"""For calls that carry megabytes, and for links that others follow."""


@dataclass(frozen=True, slots=True)
class Call:
    """One AWS call as an observer sees it: `service` and `operation` as botocore names them, and its parameters."""

    service: str
    operation: str
    parameters: dict[str, Any] = field(repr=False)


class CallObserver(Protocol):
    """Sees every AWS call of every client, PynamoDB's included; may raise from either method to make it fail."""

    def before(self, call: Call) -> None:
        """Is called before the request is sent: what it raises is an error with no effect."""
        ...

    def after(self, call: Call, answer: dict[str, Any]) -> None:
        """Is called with the parsed answer: what it raises is an error after the call took effect."""
        ...


_observers: list[CallObserver] = []


@contextmanager
def observed(observer: CallObserver) -> Iterator[None]:
    """Show every AWS call made inside the block, by any thread, to an observer."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def dynamodb() -> DynamoDBClient:
    """Answer the process's DynamoDB client."""
    client: DynamoDBClient = _client("dynamodb")
    return client


def events() -> EventBridgeClient:
    """Answer the process's EventBridge client."""
    client: EventBridgeClient = _client("events")
    return client


def sqs(region: str | None = None) -> SQSClient:
    """Answer the process's SQS client, of its own region if none is named."""
    client: SQSClient = _client("sqs", region=region)
    return client


def sqs_elsewhere(endpoint: str, *, region: str, key_id: str, key: str) -> SQSClient:
    """Answer a client of a service that speaks SQS's protocol, and knows its callers by keys of its own."""
    client: SQSClient = _client("sqs", region=region, endpoint=endpoint, keys=(key_id, key))
    return client


def sns(region: str | None = None) -> SNSClient:
    """Answer the process's SNS client, of its own region if none is named."""
    client: SNSClient = _client("sns", region=region)
    return client


def polling_sqs() -> SQSClient:
    """Answer the process's SQS client for receives that wait: it reads longer than `poll_wait`, and tries once."""
    client: SQSClient = _client("sqs", _POLLING)
    return client


def s3() -> S3Client:
    """Answer the process's S3 client."""
    client: S3Client = _client("s3", _TRANSFERRING)
    return client


def secretsmanager() -> SecretsManagerClient:
    """Answer the process's Secrets Manager client."""
    client: SecretsManagerClient = _client("secretsmanager")
    return client


def secretsmanager_once() -> SecretsManagerClient:
    """Answer the process's Secrets Manager client for those who wait no longer than `longest_try`."""
    client: SecretsManagerClient = _client("secretsmanager", _ONCE)
    return client


def ses() -> SESClient:
    """Answer the process's SES client."""
    client: SESClient = _client("ses")
    return client


def cloudformation() -> CloudFormationClient:
    """Answer the process's CloudFormation client."""
    client: CloudFormationClient = _client("cloudformation")
    return client


def functions() -> LambdaClient:
    """Answer the process's Lambda client."""
    client: LambdaClient = _client("lambda")
    return client


def sts() -> STSClient:
    """Answer the process's STS client."""
    client: STSClient = _client("sts")
    return client


def forget() -> None:
    """Make new clients on next use (other credentials, another endpoint)."""
    _make.cache_clear()
    _session.cache_clear()


_lock = Lock()


def _client(
    service: str,
    config: Config = _CONFIG,
    *,
    region: str | None = None,
    endpoint: str | None = None,
    keys: tuple[str | None, str | None] = (None, None),
) -> Any:
    with _lock:  # making a client is not thread-safe, using one is
        return _make(service, config, region, endpoint, keys)


@cache
def _session() -> boto3.session.Session:
    return boto3.session.Session()


@cache
def _make(
    service: str, config: Config, region: str | None, endpoint: str | None, keys: tuple[str | None, str | None]
) -> Any:
    client = _session().client(  # type: ignore[call-overload]
        service,
        config=config,
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=keys[0],
        aws_secret_access_key=keys[1],
    )
    client.meta.events.register("provide-client-params.*.*", _remember_parameters)
    client.meta.events.register("before-call.*.*", _before)
    client.meta.events.register("after-call.*.*", _after)
    return client


def _remember_parameters(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    if _observers:
        context["mailroom_parameters"] = params


def _before(model: Any, context: dict[str, Any], **_: Any) -> None:
    if _observers:
        call = context["mailroom_call"] = Call(
            model.service_model.service_name, model.name, context.pop("mailroom_parameters", {})
        )
        for observer in tuple(_observers):
            observer.before(call)


def _after(parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    call = context.pop("mailroom_call", None)
    if call is not None:
        for observer in tuple(_observers):
            observer.after(call, parsed)
