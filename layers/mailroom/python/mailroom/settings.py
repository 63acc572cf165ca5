"""Settings: the one way in from the environment, the same object for every function and for infra."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mailroom.failures import message_of
from mailroom.peers import Peers
from mailroom.timings import Timings, timings_of

Auth = Literal["iam", "jwt", "none"]


class SettingsError(Exception):
    """The environment lacks settings or has wrong ones; the message names every one of them."""


class Environment(BaseModel):
    """Settings that travel through environment variables, each named `PREFIX_FIELD`."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_min_length=1, hide_input_in_errors=True)
    prefix: ClassVar[str]

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the settings.

        Raises
        ------
        SettingsError
            If variables are missing or malformed.
        """
        environ = os.environ if environ is None else environ
        found = {name: environ[cls.variable(name)] for name in cls.model_fields if cls.variable(name) in environ}
        try:
            return cls(**found)
        except ValidationError as error:
            problems = "; ".join(f"{cls.variable(str(e['loc'][0]))}: {message_of(e)}" for e in error.errors())
            raise SettingsError(f"the environment does not fit {cls.__name__}: {problems}") from error

    def to_env(self) -> dict[str, str]:
        """Write the settings as environment variables."""
        return {self.variable(name): str(value) for name, value in self.model_dump(mode="json").items()}

    @classmethod
    def variable(cls, field: str) -> str:
        """Answer the name of a field's environment variable."""
        return f"{cls.prefix}_{field}".upper()

    @classmethod
    def table_fields(cls) -> dict[str, str]:
        """Answer the fields that name tables, by the tables' short names."""
        suffix = "_table"
        return {field.removesuffix(suffix): field for field in cls.model_fields if field.endswith(suffix)}

    def table_names(self) -> dict[str, str]:
        """Answer the deployed name of each table among the fields, by its short name."""
        return {short: str(getattr(self, field)) for short, field in self.table_fields().items()}


def _networks(setting: str) -> str:
    Peers.of(setting)
    return setting


class Settings(Environment):
    """What the machinery has to know of the stage it runs in."""

    prefix: ClassVar[str] = "MAILROOM"

    stage: str
    auth: Auth
    source: str
    """The CloudEvents `source` of every event of this service."""
    publisher_url: str
    """Where the relay delivers, e.g. `eventbridge://bus-name`."""
    cleanup_units: int = Field(ge=200)
    """The capacity units that one hourly run of the clean-up may use, reads and deletes together: what it costs.
    A page of a megabyte takes 128. https://aws.amazon.com/dynamodb/pricing/on-demand/"""
    signing_secret: str
    """The ARN of the secret that holds the master keys of webhook signatures."""
    outbound_networks: Annotated[str, AfterValidator(_networks)]
    """What requests to somebody else's URL may reach besides the public internet: networks with commas between them,
    or `none`, as on AWS."""
    outbox_table: str
    idempotency_table: str
    leases_table: str
    rates_table: str
    breakers_table: str
    sagas_table: str

    @property
    def timings(self) -> Timings:
        """The durations of this stage."""
        return timings_of(self.stage)
