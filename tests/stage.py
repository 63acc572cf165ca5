"""The settings of the stage that tests run in; every table that settings name is there, without being listed."""

from __future__ import annotations

from typing import Any, TypeVar

from app.api import api  # noqa: F401 - imports the models of its routes, and below those of consumers and jobs
from app.settings import AppSettings
from mailroom.registry import Registry
from mailroom.settings import Environment, Settings

E = TypeVar("E", bound=Environment)

Registry.of()


def settings(*, mark: str = "table", **others: Any) -> Settings:
    """Make the machinery's settings; tables are called `outbox-<mark>` and so on."""
    defaults = {
        "stage": "test",
        "auth": "none",
        "source": "test.service",
        "publisher_url": "eventbridge://bus",
        "cleanup_units": 5_000,
        "outbound_networks": "none",
        "signing_secret": f"signing-{mark}",
    }
    return _with_tables(Settings, mark, {**defaults, **others})


def app_settings(*, mark: str = "table", **others: Any) -> AppSettings:
    """Make the application's settings."""
    return _with_tables(
        AppSettings,
        mark,
        {
            "email_sender": "sender@example.com",
            "emails_per_second": 14,
            "reports_bucket": f"reports-{mark}",
            **others,
        },
    )


def _with_tables(kind: type[E], mark: str, values: dict[str, Any]) -> E:
    return kind(**{field: f"{short}-{mark}" for short, field in kind.table_fields().items()}, **values)
