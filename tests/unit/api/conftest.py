"""The example's API without AWS: a request that is refused before anything is read or written needs none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.api import api
from mailroom.clients import Call, observed
from mailroom.http.testing import ApiClient
from mailroom.row import bind
from mailroom.runtime import Runtime
from mailroom.testing import ManualClock
from tests import stage
from tests.integration.api.conftest import DocumentedClient


class NoCalls:
    """Fails the test at the first call to AWS: the API would answer 503, and some tests expect failures."""

    def before(self, call: Call) -> None:
        pytest.fail(f"{call.operation} was asked of AWS", pytrace=False)

    def after(self, call: Call, answer: object) -> None: ...


@pytest.fixture
def client() -> Iterator[ApiClient]:
    settings = stage.settings(), stage.app_settings()
    bind(*settings)
    with observed(NoCalls()):
        yield DocumentedClient(api, Runtime(*settings, clock=ManualClock()))
