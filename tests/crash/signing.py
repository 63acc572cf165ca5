"""Signing keys change while webhooks are sent, and receivers fetch what is live."""

from __future__ import annotations

from collections.abc import Iterator

from mailroom.clock import epoch_seconds
from mailroom.jobs.hmac_rotator import hmac_rotator
from mailroom.master_keys import MasterKeys
from mailroom.signing import SignatureRefused, signature_header, verify
from mailroom.signing_keys import SigningKeys

from .harness import Scenario
from .ledger import Finding, Flaw, once
from .world import World

ENDPOINT = "webhook-1"


class Rotation(Scenario):
    """The job adds a key and retires the old one, while a sender goes on and a receiver fetches twice an overlap."""

    def prepare(self, world: World) -> None:
        world.aws.make_secret()
        self.refused = 0
        self.receiver = self._live_secrets(world)

    def step(self, world: World) -> bool:
        world.process.run(hmac_rotator)
        self._send(world)
        self.receiver = self._live_secrets(world)
        if len(self.receiver) == 2:
            world.clock.advance(world.process.runtime.timings.signing_overlap / 2)
        return len(world.aws.secret_versions()) >= 3

    def judge(self, world: World) -> Iterator[Finding]:
        yield from once("keys that are live", len(self.receiver))
        yield from once("keys that were added", len(world.aws.secret_versions()) - 2)
        if self.refused:
            yield Finding(Flaw.LOST, f"{self.refused} webhooks were refused")

    def _send(self, world: World) -> None:
        now = world.clock.now()
        keys = world.process.runtime.use(SigningKeys).keys_of(ENDPOINT)
        timestamp, body = epoch_seconds(now), b"{}"
        signatures = signature_header(keys, message_id="event-1", timestamp=timestamp, body=body)
        try:
            verify(
                self.receiver,
                message_id="event-1",
                timestamp=str(timestamp),
                signatures=signatures,
                body=body,
                now=now,
            )
        except SignatureRefused:
            self.refused += 1

    @staticmethod
    def _live_secrets(world: World) -> list[str]:
        version, text = list(world.aws.secret_versions().items())[-1]
        keys = MasterKeys.parse(text, version=version, created_at=world.clock.now()).keys
        return [each.endpoint_key(ENDPOINT).secret for each in keys]
