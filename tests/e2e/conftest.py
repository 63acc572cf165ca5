"""What every end-to-end test uses: the deployed stack, its API, its mailbox and its AWS clients."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local.api import Api
from local.mailbox import Mailbox
from local.stack import LocalStack
from local.waiting import eventually as wait_until
from local.workspace import LOCAL


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
