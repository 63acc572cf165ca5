"""Packages that are not installed."""

from __future__ import annotations

import sys

import pytest

LINKS = {"mailroom.publishers.amqp_session", "mailroom.publishers.kafka_link", "mailroom.publishers.rabbitmq_link"}
"""The modules that import them, and that nothing else imports before it publishes."""


def without(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a broker's client library be as good as not installed."""
    for name in [name for name in sys.modules if name in LINKS or name.partition(".")[0] == client]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, client, None)
