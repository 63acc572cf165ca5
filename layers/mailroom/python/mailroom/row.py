"""The base of every table's model: one shared client, and a table name that is bound at the edge."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, cast

from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.connection.table import TableConnection
from pynamodb.models import Model

from mailroom import clients
from mailroom.attributes import check_moments

M = TypeVar("M", bound="Row")


class NamesTables(Protocol):
    """What `bind` needs: settings that answer the deployed name of a table by its short one."""

    def table_names(self) -> dict[str, str]:
        """Answer the map from short names to deployed names."""
        ...


class Row(Model):
    """A row of a table of ours.

    A model names its table by `class Meta: short_name = "repos"`. The deployed name comes with `bind`;
    until then nothing of AWS is needed, so that models can be imported anywhere.
    """

    tables: ClassVar[dict[str, type[Row]]] = {}
    """Every model that has been imported, by the short name of its table."""
    deployed: ClassVar[dict[str, str]] = {}
    """The deployed names that `bind` was given, by the short ones."""

    class Meta:
        short_name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_moments(cls)
        if "Meta" in cls.__dict__:
            Row.tables[cls.Meta.short_name] = cls
            _bind(cls)

    @classmethod
    def table_name(cls) -> str:
        """Answer the deployed name of the table.

        Raises
        ------
        LookupError
            If no settings were bound.
        """
        name: str | None = getattr(cls.Meta, "table_name", None)
        if name is None:
            raise LookupError(f"the table {cls.Meta.short_name!r} has no deployed name yet: call bind(settings) first")
        return name

    @property
    def label(self) -> str:
        """What errors call the row, e.g. `repos 42`."""
        keys = self._get_hash_range_key_serialized_values()
        return " ".join([self.Meta.short_name, *(str(key) for key in keys if key is not None)])

    @classmethod
    def _get_connection(cls) -> TableConnection:
        connection = super()._get_connection()
        # PynamoDB would make a client for each model, with a 30 s read time-out and outside our hook.
        connection.connection._client = cast(Any, clients.dynamodb())
        return connection


class UpdateWithoutVersion(TypeError):
    """Code changes attributes of a row that events are about, past its version; nothing was written."""

    def __init__(self, row: Row) -> None:
        super().__init__(
            f"{row.label} is a row that events are about, so that it has a version: an update would go past it and"
            " past the order of the events. Read it, change it and save it; keep what many add to at once in a row"
            " of its own"
        )


class SubjectRow(Row):
    """A row that events are about: its version guards it, and it remembers its latest event.

    The two make the order of a subject's events: a new event's id is later than `last_event_id`,
    and both are written under the row's version. Such a row is therefore read, changed and saved; it has no update.
    """

    version = NumberAttribute(default=0)
    """How often the row was saved; 0 before the first time."""
    last_event_id = UnicodeAttribute(null=True)

    @property
    def subject(self) -> str:
        """What the row's events are about, e.g. `repos/42`."""
        hash_key, _ = self._get_hash_range_key_serialized_values()
        return f"{self.Meta.short_name}/{hash_key}"

    def update(self, *_: Any, **__: Any) -> NoReturn:
        """Raise `UpdateWithoutVersion`."""
        raise UpdateWithoutVersion(self)


def bind(*settings: NamesTables) -> None:
    """Give every model the deployed name of its table: also one that is imported later."""
    for names in settings:
        Row.deployed.update(names.table_names())
    for model in Row.tables.values():
        _bind(model)


def _bind(model: type[Row]) -> None:
    if model.Meta.short_name in Row.deployed:
        model.Meta.table_name = Row.deployed[model.Meta.short_name]  # type: ignore[attr-defined]
