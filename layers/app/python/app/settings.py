"""The application's own settings."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

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
    emails_per_second: float = Field(gt=0)
    """What SES takes from the account: `aws sesv2 get-account` tells it; 1 in its sandbox.
    https://docs.aws.amazon.com/ses/latest/dg/manage-sending-quotas.html"""
