"""The receiver of docs/webhooks.md, run as it is printed there."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
import time_machine
import urllib3

from mailroom.idempotency import IdempotencyRow
from mailroom.telemetry import LogEvent
from mailroom.testing import ManualClock
from tests.log_lines import Lines

from .conftest import Line, Subscriber

DOCUMENT = (Path(__file__).parents[3] / "docs/webhooks.md").read_text()
(BLOCK,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)


@pytest.fixture
def documented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The block as a module of its own."""
    (tmp_path / "documented_receiver.py").write_text(BLOCK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "documented_receiver", raising=False)
    module = importlib.import_module("documented_receiver")
    monkeypatch.setattr(module.Receiver, "log_message", lambda *_: None)
    return module


@pytest.fixture
def url(documented: ModuleType, clock: ManualClock) -> Iterator[str]:
    """Where the receiver listens, in the time of the test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), documented.Receiver)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    with time_machine.travel(clock.now(), tick=False):
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/in"
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def handled(documented: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    events: list[Any] = []
    monkeypatch.setattr(documented, "handle", events.append)
    return events


def test_it_takes_what_is_ours__once(
    line: Line, subscriber: Subscriber, url: str, handled: list[Any], monkeypatch: pytest.MonkeyPatch, logs: Lines
) -> None:
    webhook_id = subscriber.post(url, "repo.created").json["id"]
    monkeypatch.setenv("WEBHOOK_SECRET", str(subscriber.secrets(webhook_id)["current"]))
    for _ in range(2):
        line.happen()
        assert line.deliver() == 0
        for record in IdempotencyRow.scan(consistent_read=True):
            record.delete()  # so that it comes again, as after a crash

    assert [event["type"] for event in handled] == ["repo.created"]
    assert [each["status"] for each in logs() if each["message"] == LogEvent.WEBHOOK_DELIVERED] == [204, 204]


@pytest.mark.parametrize(
    "headers",
    [{}, {"webhook-id": "msg_1", "webhook-timestamp": "1893456000", "webhook-signature": "nonsense"}],
    ids=["unsigned", "forged"],
)
def test_it_refuses_what_is_not(
    url: str, handled: list[Any], monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setenv("WEBHOOK_SECRET", "whsec_" + "a" * 44)
    answer = urllib3.PoolManager(retries=False).request("POST", url, body=b"{}", headers=headers)

    assert (answer.status, handled) == (401, [])
