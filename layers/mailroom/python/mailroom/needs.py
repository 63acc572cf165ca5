"""What code needs from AWS, declared beside it: infra turns it into grants, action by action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, Self

from pynamodb.indexes import Index

from mailroom.outbox.event import Event, Part
from mailroom.row import Row, SubjectRow

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

Conditions = Mapping[str, Mapping[str, str]]
"""Of a policy's statement, e.g. `{"StringEquals": {"ses:FromAddress": "a@example.com"}}`."""


@dataclass(frozen=True, slots=True)
class Need:
    """Actions on a resource.

    Parameters
    ----------
    actions
        IAM actions, e.g. `ses:SendEmail`.
    resource
        The model of a table, without its indexes; or an index of one.
        Or service and resource of the ARN, e.g. `ses:identity/*` or `s3:bucket/folder/*`: infra adds partition, region
        and account, S3's without the last two.
        Or a whole ARN, out of the settings.
    why_many
        Why the resource is a pattern and no name, where it is one. Synth refuses a pattern without a reason.
    conditions
        What else must hold for the actions to be allowed. Not on the local stage, which knows none of them.
    """

    actions: tuple[str, ...]
    resource: str | type[Row] | Index[Any]
    why_many: str | None = None
    conditions: Conditions | None = None


@dataclass(frozen=True, slots=True)
class LayerNeed:
    """A Lambda layer besides those that every function has: one that `make` builds below this name."""

    name: str


class Port(Protocol):
    """Something outside that code uses: `uses=[Email]` grants its needs and gives the code an instance."""

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need | LayerNeed, ...]:
        """Answer what the port needs under these settings (at synth they hold CDK's placeholders)."""
        ...

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        """Make the real thing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a piece of code touches: what it may do at run time and what infra grants it are the same list.

    Parameters
    ----------
    reads, writes, scans
        The models whose rows its units of work read, by key or by an index; that they write (and read). The models
        whose tables it walks as a whole, by `Model.scan()`.
    publishes
        The events that it adds to the outbox.
    splits_into
        The parts that a consumer hands on to the consumer that waits for them.
    uses
        The outward ports that it calls.
    needs
        What else it takes, e.g. what it calls on a table past its unit of work.
    """

    reads: tuple[type[Row], ...] = ()
    writes: tuple[type[Row], ...] = ()
    scans: tuple[type[Row], ...] = ()
    publishes: tuple[type[Event], ...] = ()
    splits_into: tuple[type[Part], ...] = ()
    uses: tuple[type[Port], ...] = ()
    needs: tuple[Need, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        reads: Sequence[type[Row]],
        writes: Sequence[type[Row]],
        scans: Sequence[type[Row]],
        publishes: Sequence[type[Event]],
        splits_into: Sequence[type[Part]] = (),
        uses: Sequence[type[Port]],
        needs: Sequence[Need] = (),
    ) -> Self:
        """Make it of lists, as declarations write them."""
        return cls(
            reads=tuple(reads),
            writes=tuple(writes),
            scans=tuple(scans),
            publishes=tuple(publishes),
            splits_into=tuple(splits_into),
            uses=tuple(uses),
            needs=tuple(needs),
        )

    def of_tables(self) -> Iterator[Need]:
        """Return what its units of work and its scans take: the actions that they call, and no others."""
        for model in dict.fromkeys(self.reads + self.writes):
            yield Need(("dynamodb:GetItem",), model)
            if issubclass(model, SubjectRow):
                yield Need(("dynamodb:ConditionCheckItem",), model)  # as `unchanged` does
            for index in model._indexes.values():
                yield Need(("dynamodb:Query",), index)
        for model in self.writes:
            yield Need(_writes(model), model)
        for model in self.scans:
            yield Need(("dynamodb:Scan",), model)

    def __or__(self, other: Access) -> Access:
        """Answer what both touch together."""
        return Access(
            **{
                field.name: tuple(dict.fromkeys((*getattr(self, field.name), *getattr(other, field.name))))
                for field in fields(Access)
            }
        )


def _writes(model: type[Row]) -> tuple[str, ...]:
    """Return the actions of a commit that writes a model: TransactWriteItems asks for those of its items.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html
    """
    deletes = ("dynamodb:DeleteItem",) if model.deletable else ()
    updates = () if issubclass(model, SubjectRow) else ("dynamodb:UpdateItem",)
    return (*deletes, "dynamodb:PutItem", *updates)
