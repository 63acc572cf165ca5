"""The application's own settings."""

from __future__ import annotations

from typing import ClassVar

from mailroom.settings import Environment


class AppSettings(Environment):
    """What the example domain has to know of its stage."""

    prefix: ClassVar[str] = "APP"

    repos_table: str
    owners_table: str
    reports_table: str
    webhooks_table: str
    reports_bucket: str
    """The bucket that reports lie in until they expire."""
    email_sender: str
    """The address that notifications come from; its domain or itself is a verified SES identity."""
