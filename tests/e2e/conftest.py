"""What every end-to-end test uses: the deployed stack, its API, its mailbox and its AWS clients."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
import trustme

from local.account import CREDENTIALS, HOST
from local.api import Api
from local.mailbox import Mailbox
from local.rabbitmq import WITHOUT, RabbitMqServer
from local.stack import LocalStack
from local.waiting import eventually as wait_until
from local.workspace import LOCAL
from mailroom import clients
from mailroom.clock import SystemClock
from mailroom.row import Row, bind
from mailroom.runtime import Runtime
from tests import stage


@pytest.fixture(scope="session")
def stack() -> LocalStack:
    """The stack that `make e2e` deployed, or the one of `make up`."""
    path = Path(os.environ.get("MAILROOM_LOCAL_JSON", LOCAL.description))
    if not path.exists():
        pytest.exit(f"{path} is not there: run `make e2e`, or `make up` before pytest", returncode=2)
    return LocalStack.read(path)


@pytest.fixture(scope="session")
def api(stack: LocalStack) -> Api:
    """The deployed HTTP API: `api.post("/api/v1/repos", {...}, key="…")`."""
    return Api(stack.api_url)


@pytest.fixture(scope="session")
def mailbox(stack: LocalStack) -> Mailbox:
    """The e-mails that left: `mailbox.to("someone@example.com")`."""
    return Mailbox(stack.endpoint_url)


@pytest.fixture(scope="session")
def client(stack: LocalStack) -> Callable[[str], Any]:
    """Makes boto3 clients of the stack: `client("sqs")`."""
    return stack.client


@pytest.fixture(scope="session")
def table(stack: LocalStack) -> Callable[[str], Any]:
    """The stack's tables by short name: `table("outbox")`."""
    return stack.table


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    """Waits for a condition: `eventually(lambda: mailbox.to(address), within=20)`."""
    return wait_until


@pytest.fixture
def runtime(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A process with tables that no deployed function knows."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", stack.endpoint_url)
    monkeypatch.delenv("AWS_SESSION_TOKEN")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    clients.forget()
    mark = uuid4().hex[:8]
    settings = stage.settings(mark=mark, publisher_url="eventbridge://none")
    app_settings = stage.app_settings(mark=mark, email_sender="a@example.com")
    bind(settings, app_settings)
    for name in settings.table_names() | app_settings.table_names():
        Row.tables[name].create_table(billing_mode="PAY_PER_REQUEST", wait=True)
    yield Runtime(settings, app_settings, clock=SystemClock(), random=Random())  # noqa: S311 - no secret
    clients.forget()


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Who signs the broker's certificate."""
    return trustme.CA()


@pytest.fixture(scope="session")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The broker's certificate."""
    path = tmp_path_factory.mktemp("certificate") / "broker.pem"
    authority.issue_cert(HOST).private_key_and_cert_chain_pem.write_to_path(path)
    return path


@pytest.fixture(scope="session")
def server(certificate: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMqServer]:
    """A RabbitMQ of ours."""
    if os.environ.get(WITHOUT):
        pytest.skip(f"{WITHOUT} is set")
    with RabbitMqServer(tmp_path_factory.mktemp("rabbitmq"), certificate=certificate) as running:
        yield running
