"""What its consumer does."""

from pynamodb.attributes import NumberAttribute, UnicodeAttribute

from mailroom.outbox.event import Event
from mailroom.row import Row


class ThingPlaced(Event, type="thing.placed"):
    """Something was placed."""

    name: str


class Effect(Row):
    """How often an event had its effect."""

    class Meta:
        short_name = "effects"

    id = UnicodeAttribute(hash_key=True)
    times = NumberAttribute(default=0)
