"""What code needs from AWS, declared beside it: infra turns it into grants, action by action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol, Self

from mailroom.outbox.event import Event, Part
from mailroom.row import Row

if TYPE_CHECKING:
    from mailroom.runtime import Runtime

READ_ACTIONS = ("dynamodb:BatchGetItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:Query")
"""What `reads=[…]` grants on a table; the check is a look at a row as part of a commit."""
WRITE_ACTIONS = ("dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
"""What `writes=[…]` grants on a table, besides reading it."""
SCAN_ACTIONS = ("dynamodb:Scan",)
"""What `scans=[…]` grants on a table."""


@dataclass(frozen=True, slots=True)
class Need:
    """Actions on a resource outside our tables.

    Parameters
    ----------
    actions
        IAM actions, e.g. `ses:SendEmail`.
    resource
        Service and resource of the ARN, e.g. `ses:identity/*` or `s3:bucket/folder/*`: infra adds partition, region and
        account, S3's without the last two.
        Or a whole ARN, out of the settings.
    why_many
        Why the resource is a pattern and no name, where it is one. Synth refuses a pattern without a reason.
    """

    actions: tuple[str, ...]
    resource: str
    why_many: str | None = None


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
        The models whose tables it reads; that it writes (and reads); that it walks as a whole.
    publishes
        The events that it adds to the outbox.
    splits_into
        The parts that a consumer hands on to the consumer that waits for them.
    uses
        The outward ports that it calls.
    """

    reads: tuple[type[Row], ...] = ()
    writes: tuple[type[Row], ...] = ()
    scans: tuple[type[Row], ...] = ()
    publishes: tuple[type[Event], ...] = ()
    splits_into: tuple[type[Part], ...] = ()
    uses: tuple[type[Port], ...] = ()

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
    ) -> Self:
        """Make it of lists, as declarations write them."""
        return cls(
            reads=tuple(reads),
            writes=tuple(writes),
            scans=tuple(scans),
            publishes=tuple(publishes),
            splits_into=tuple(splits_into),
            uses=tuple(uses),
        )

    def __or__(self, other: Access) -> Access:
        """Answer what both touch together."""
        return Access(
            **{
                field.name: tuple(dict.fromkeys((*getattr(self, field.name), *getattr(other, field.name))))
                for field in fields(Access)
            }
        )
