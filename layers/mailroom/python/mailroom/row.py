"""The base of every table's model: one shared client, and a table name that is bound at the edge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, Protocol, Self, TypeVar, cast

from pynamodb.attributes import NumberAttribute, UnicodeAttribute
from pynamodb.connection.table import TableConnection
from pynamodb.models import Model

from mailroom import clients
from mailroom.attributes import check_moments

M = TypeVar("M", bound="Row")
Item = Mapping[str, Any]
"""A row as DynamoDB writes and answers it: `{"name": {"S": "value"}}`."""


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

    deletable: ClassVar[bool] = True
    """Whether units of work may delete it, and whoever writes the model has the right to. Say no of rows that stay."""

    read_from: Item | None = None
    """The item that it was read from, where `reading` read it."""
    _written_as: Item | None = None

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

    @classmethod
    def as_it_is(cls, item: Item) -> Self:
        """Make a row that is written as this item, with what the model does not know or cannot read."""
        row = cls(*(next(iter(item[name].values())) for name in cls.key_names()))
        row._written_as = item
        return row

    @classmethod
    def further_flaws(cls, item: Item) -> dict[str, str]:
        """Return what is wrong with which attribute of an item all of whose attributes can be read each by itself."""
        return {}

    @classmethod
    def key_names(cls) -> tuple[str, ...]:
        """Return the names of the table's keys."""
        return tuple(filter(None, (cls._hash_keyname, cls._range_keyname)))

    def serialize(self, null_check: bool = True) -> dict[str, dict[str, Any]]:
        """Return what is written, in DynamoDB's form."""
        if self._written_as is not None:
            return dict(self._written_as)
        return super().serialize(null_check=null_check)

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


class RowStays(TypeError):
    """Code deletes a row that its model calls not deletable; nothing was written."""

    def __init__(self, row: Row) -> None:
        super().__init__(
            f"{row.label} stays: {type(row).__name__} is not deletable, and nobody has the right to delete it"
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
