"""The scenario of a row that cannot be read, among others that can."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mailroom import clients
from mailroom.outbox.table import DEAD, OutboxRow, pending
from mailroom.reading import UNREADABLE
from tests.integration.outbox.conftest import SHARD, Outbox

from .harness import Scenario
from .ledger import Finding, Flaw, nothing_waits, published
from .world import World


class DrainPastUnreadable(Scenario):
    """The relay sets aside a row whose count was written by hand, and delivers what is before and behind it."""

    def prepare(self, world: World) -> None:
        world.publish_to()
        outbox = Outbox(world.process.runtime, world.clock)
        subject = outbox.subject()
        first, self.bad, last = (outbox.add(subject) for _ in range(3))
        self.ids = [first, outbox.add(), last]
        key: Any = {"partition": {"S": pending(SHARD)}, "event_id": {"S": self.bad}}
        table = OutboxRow.table_name()
        row = clients.dynamodb().get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
        clients.dynamodb().put_item(TableName=table, Item={**row, "retry_count": {"S": "0"}})

    def step(self, world: World) -> bool:
        world.process.wake_relay()
        return not world.pending

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from published(world, self.ids)
        rows = [row for row in world.outbox if row["event_id"] == self.bad]
        if [row["partition"] for row in rows] != [DEAD]:
            yield Finding(Flaw.LOST, f"{self.bad} is in {[row['partition'] for row in rows]}")
        for row in rows:
            if row["retry_count"] != "0" or row["payload"] != "{}":
                yield Finding(Flaw.LOST, f"{self.bad} is not as it was: {row}")
            if json.loads(row.get("failure", "{}")).get("type") != UNREADABLE:
                yield Finding(Flaw.LOST, f"{self.bad} is dead for another reason")
        if self.bad in world.journal.published:
            yield Finding(Flaw.DUPLICATED, f"{self.bad} was set aside and published")
