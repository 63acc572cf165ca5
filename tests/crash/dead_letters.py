"""The scenarios of dead letters of which no record tells."""

from __future__ import annotations

from collections.abc import Iterator

from mailroom.dead_letters.letter import Deed, Fate
from mailroom.dead_letters.queued import QueuedLetters
from mailroom.dead_letters.redrive import Plan, Redrive
from mailroom.outbox.event import Envelope

from .aws import QUEUE
from .harness import Scenario
from .ledger import Finding, Flaw, nothing_waits, one_effect_each, records_completed
from .world import World, counting

EVENT = "01Q3DCBD00YPRPA8JAB2VS3WER-03"
"""Of the day on which the world's clock starts: too young for its record to be gone."""
_PAYLOAD = '{"repo_id":"1","name":"a repository","owner_id":"owner-1"}'
DEED = Deed(by="operator", at="2030-01-01T00:00:00.000Z", why="it was never started")


class RedriveUnseen(Scenario):
    """A message died before its function was ever started; an operator sends all that is dead again."""

    def prepare(self, world: World) -> None:
        envelope = Envelope(EVENT, "repo.created", "test.service", "repos/1", DEED.at, _PAYLOAD)
        world.aws.send(envelope.to_json(), to=f"{QUEUE}-dead")

    def step(self, world: World) -> bool:
        world.process.deliver()
        desk = world.process.desk
        for result in Redrive(desk, Plan.matching(desk, keep=lambda _: True), DEED).run():
            if result.fate is Fate.SUCCEEDED_BEFORE:  # what is left of a redrive that was cut short
                list(desk.of(QUEUE).discard([result.id], DEED))
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        yield from one_effect_each(world, [EVENT])
        yield from records_completed(world)


class EditUnseen(RedriveUnseen):
    """The same message, but an operator puts a mended copy in its place."""

    def step(self, world: World) -> bool:
        world.process.deliver()
        letters = world.process.desk.of(QUEUE)
        assert isinstance(letters, QueuedLetters)
        if world.aws.depth(f"{QUEUE}-dead"):
            letters.edit(EVENT, _PAYLOAD.replace("a repository", "mended"), DEED, read=counting.read)
        return not world.messages

    def judge(self, world: World) -> Iterator[Finding]:
        yield from nothing_waits(world)
        effects = world.effects
        if effects[EVENT] or sum(effects.values()) != 1:
            yield Finding(Flaw.DUPLICATED if effects else Flaw.LOST, f"instead of one mended copy: {dict(effects)}")
