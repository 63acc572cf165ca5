"""What the constructs of a service share, so that each takes one argument instead of five."""

from __future__ import annotations

from dataclasses import dataclass

from app.settings import AppSettings
from infra.layers import Layers
from infra.monitoring import Alarms
from infra.stage import StageConfig
from infra.tables import Tables
from mailroom.deployment import SERVICE
from mailroom.runtime import Runtime
from mailroom.settings import Environment, Settings
from mailroom.timings import Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The stage, its tables and alarms, and what every function gets.

    Parameters
    ----------
    settings
        One object of each kind; values that only a deployment knows are CDK's placeholders.
    """

    stage: StageConfig
    tables: Tables
    alarms: Alarms
    settings: tuple[Environment, ...]
    layers: Layers

    @property
    def timings(self) -> Timings:
        """The durations of the stage."""
        return self.stage.timings

    @property
    def runtime(self) -> Runtime:
        """What ports ask for their needs."""
        return Runtime(*self.settings)

    def environment(self) -> dict[str, str]:
        """Answer the settings as environment variables."""
        return {name: value for kind in self.settings for name, value in kind.to_env().items()}


def settings_of(
    stage: StageConfig, *, tables: Tables, publisher_url: str, signing_secret: str, reports_bucket: str
) -> tuple[Environment, ...]:
    """Answer the settings of a stage: the one place that fills them in."""
    return (
        Settings(
            stage=stage.name,
            auth=stage.auth,
            source=SERVICE,
            publisher_url=publisher_url,
            cleanup_units=stage.cleanup_units,
            outbound_networks=stage.outbound_networks,
            signing_secret=signing_secret,
            **tables.fields_of(Settings),
        ),
        AppSettings(
            email_sender=stage.email_sender,
            emails_per_second=stage.emails_per_second,
            reports_bucket=reports_bucket,
            **tables.fields_of(AppSettings),
        ),
    )
