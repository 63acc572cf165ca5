"""The rotation of the master keys: what is due, once, whoever else is at it; and no receiver notices."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from moto.backends import get_backend

from mailroom import clients
from mailroom.clients import Call, observed
from mailroom.clock import epoch_seconds
from mailroom.job import JobEdge
from mailroom.jobs.hmac_rotator import hmac_rotator
from mailroom.master_keys import MalformedSecret, MasterKey, MasterKeys
from mailroom.runtime import Runtime
from mailroom.signing import signature_header, verify
from mailroom.signing_keys import SecretPutBack, SigningKeys, SigningSecret
from mailroom.telemetry import LogEvent
from mailroom.testing import LambdaContext, ManualClock
from mailroom.timings import DAY, HOUR, MINUTE
from tests import generated
from tests.faults import Died, died, failing, refused, throttled, timed_out
from tests.log_lines import Lines

from .conftest import CallCounter, Process

WRITE = "PutSecretValue"
FIRST = b"s3cr3t-1" * 4


@pytest.fixture
def secret(runtime: Runtime, clock: ManualClock) -> SigningSecret:
    """The stage's secret, with a key that was made now."""
    first = MasterKeys(keys=(MasterKey.of("first", FIRST, clock.now()),))
    clients.secretsmanager().create_secret(Name=runtime.settings.signing_secret, SecretString=first.to_json())
    return runtime.use(SigningSecret)


def rotate(runtime: Runtime) -> None:
    JobEdge(hmac_rotator, runtime).run(LambdaContext())


def live(secret: SigningSecret) -> list[str]:
    return [each.id for each in secret.read().keys.keys]


@pytest.fixture
def due(secret: SigningSecret, clock: ManualClock, runtime: Runtime) -> SigningSecret:
    """The secret when its key is old."""
    clock.advance(runtime.timings.signing_rotation)
    return secret


@pytest.fixture
def overlapped(due: SigningSecret, clock: ManualClock, runtime: Runtime) -> SigningSecret:
    """The secret when the overlap of two keys is over."""
    rotate(runtime)
    clock.advance(runtime.timings.signing_overlap)
    return due


def told(logs: Lines) -> list[tuple[str, str | None]]:
    return [(each["message"], each.get("key_id")) for each in logs() if each["message"].startswith("signing")]


# What a run does


def test_a_young_key_stays_alone(secret: SigningSecret, runtime: Runtime, calls: CallCounter) -> None:
    rotate(runtime)
    assert live(secret) == ["first"]
    assert calls.counts[WRITE] == 0


def test_an_old_key_is_joined_by_the_next__named_for_the_version_that_brought_it(
    due: SigningSecret, runtime: Runtime, logs: Lines
) -> None:
    rotate(runtime)
    stored = due.read()
    assert live(due) == ["first", stored.version]
    assert len(stored.keys.keys[1].key) == 32
    assert told(logs) == [(LogEvent.SIGNING_KEY_ADDED, stored.version)]


def test_the_next_key_is_alone__once_the_overlap_is_over(
    overlapped: SigningSecret, runtime: Runtime, logs: Lines
) -> None:
    _, following = live(overlapped)
    rotate(runtime)
    assert live(overlapped) == [following]
    assert told(logs)[-2:] == [(LogEvent.SIGNING_KEY_PROMOTED, following), (LogEvent.SIGNING_KEY_RETIRED, "first")]


@pytest.mark.parametrize("state", ["due", "overlapped"])
def test_a_run_a_minute_after_the_last_changes_nothing(
    state: str, request: pytest.FixtureRequest, runtime: Runtime, clock: ManualClock
) -> None:
    secret = request.getfixturevalue(state)
    rotate(runtime)
    after = secret.read()
    clock.advance(MINUTE)
    rotate(runtime)
    assert secret.read() == after


def test_keys_differ__each_time(secret: SigningSecret, runtime: Runtime, clock: ManualClock) -> None:
    seen = {FIRST}
    for _ in range(4):
        clock.advance(runtime.timings.signing_rotation)
        rotate(runtime)
        seen |= {each.key for each in secret.read().keys.keys}
    assert len(seen) == 3


def test_a_seed_is_written_down_as_the_key_it_was(runtime: Runtime, clock: ManualClock) -> None:
    clients.secretsmanager().create_secret(
        Name=runtime.settings.signing_secret, SecretString=json.dumps({"seed": "s" * 64})
    )
    (before,) = runtime.use(SigningKeys).keys_of("webhook-1")
    clock.advance(runtime.timings.signing_rotation)
    rotate(runtime)
    after = runtime.use(SigningKeys).keys_of("webhook-1")
    assert (after[0].secret, len(after)) == (before.secret, 2)
    assert after[0].id == before.id


@pytest.mark.parametrize("value", ["s3cr3t", '{"s3cr3t": 1}', '{"seed": "s3cr3t"}', '{"keys": [{"key": "s3cr3t"}]}'])
def test_a_malformed_secret_fails_the_job__and_is_left_as_it_is_and_not_told(
    secret: SigningSecret, runtime: Runtime, value: str, logs: Lines
) -> None:
    aws, name = clients.secretsmanager(), runtime.settings.signing_secret
    aws.put_secret_value(SecretId=name, SecretString=value)
    with pytest.raises(MalformedSecret):
        rotate(runtime)
    assert aws.get_secret_value(SecretId=name)["SecretString"] == value
    assert "MalformedSecret" in json.dumps(logs())
    assert "s3cr3t" not in json.dumps(logs())


# Clocks


@pytest.mark.parametrize("seconds", [-DAY, -HOUR], ids=str)
@pytest.mark.parametrize("state", ["due", "overlapped"])
def test_a_clock_that_was_set_back_delays_what_is_due__and_nothing_else(
    state: str, request: pytest.FixtureRequest, runtime: Runtime, clock: ManualClock, seconds: float
) -> None:
    secret = request.getfixturevalue(state)
    before = secret.read()
    clock.jump(seconds)
    rotate(runtime)
    assert secret.read() == before
    clock.jump(-seconds)
    rotate(runtime)
    assert secret.read() != before


def test_a_key_from_a_clock_that_was_ahead_overlaps_for_longer__not_shorter(
    secret: SigningSecret, runtime: Runtime, clock: ManualClock
) -> None:
    timings = runtime.timings
    clock.jump(timings.signing_rotation + DAY)
    rotate(runtime)
    clock.jump(-DAY)
    clock.advance(timings.signing_overlap)
    rotate(runtime)
    assert len(live(secret)) == 2
    clock.advance(DAY)
    rotate(runtime)
    assert len(live(secret)) == 1


# Two at once


@dataclass
class Meanwhile:
    """Lets another act right before this one writes."""

    act: Callable[[], None]
    acted: bool = False

    def before(self, call: Call) -> None:
        if call.operation == WRITE and not self.acted:
            self.acted = True
            self.act()

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


@pytest.fixture
def overtaken(another: Process, clock: ManualClock) -> Callable[[], None]:
    """Runs the job in a process that stalls past its lease before it writes, while another does it all."""

    def other() -> None:
        clock.advance(10 * MINUTE)
        rotate(another())

    def run() -> None:
        with observed(Meanwhile(other)):
            rotate(another())

    return run


def test_of_two_runs_that_read_the_same_version_one_adds_its_key__and_the_other_ends_well(
    due: SigningSecret, overtaken: Callable[[], None], runtime: Runtime, logs: Lines
) -> None:
    overtaken()
    stored = due.read()
    assert live(due) == ["first", stored.version]
    assert len(versions(runtime)) == 2
    assert [message for message, _ in told(logs)] == [LogEvent.SIGNING_KEY_ADDED, LogEvent.SIGNING_KEYS_OVERTAKEN]


def test_of_two_runs_that_retire_the_same_key_the_second_changes_nothing(
    overlapped: SigningSecret, overtaken: Callable[[], None], runtime: Runtime
) -> None:
    _, following = live(overlapped)
    overtaken()
    assert live(overlapped) == [following]
    assert len(versions(runtime)) == 3


def test_a_run_that_read_long_ago_cannot_bring_back_what_it_read(
    overlapped: SigningSecret, another: Process, clock: ManualClock, runtime: Runtime
) -> None:
    stale = overlapped.read()
    rotate(runtime)
    clock.advance(runtime.timings.signing_rotation)
    rotate(runtime)
    after = overlapped.read()
    assert not overlapped.replace(stale, stale.keys)
    assert overlapped.read() == after


@pytest.mark.parametrize("state", ["due", "overlapped"])
def test_an_older_version_that_was_made_current_again_is_told__with_what_to_do(
    state: str, request: pytest.FixtureRequest, runtime: Runtime
) -> None:
    secret = request.getfixturevalue(state)
    before = secret.read()
    rotate(runtime)
    after = secret.read()
    make_current(runtime, before.version, instead_of=after.version)
    with pytest.raises(SecretPutBack, match="put its value once more, as a new version"):
        rotate(runtime)
    clients.secretsmanager().put_secret_value(
        SecretId=runtime.settings.signing_secret, SecretString=before.keys.to_json()
    )
    rotate(runtime)
    assert len(live(secret)) == len(after.keys.keys)


def versions(runtime: Runtime) -> list[str]:
    listed = clients.secretsmanager().list_secret_version_ids(
        SecretId=runtime.settings.signing_secret, IncludeDeprecated=True
    )
    return [each["VersionId"] for each in listed["Versions"]]


def make_current(runtime: Runtime, version: str, *, instead_of: str) -> None:
    name = runtime.settings.signing_secret
    clients.secretsmanager().update_secret_version_stage(
        SecretId=name, VersionStage="AWSCURRENT", MoveToVersionId=version, RemoveFromVersionId=instead_of
    )
    # moto moves the label, but not what it takes for the version that the next value follows.
    backend: Any = get_backend("secretsmanager")
    backend["123456789012"]["us-east-1"].secrets[name].default_version_id = version


# Faults


@pytest.mark.parametrize("state", ["due", "overlapped"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [died, timed_out, throttled], ids=lambda error: error.__name__)
@pytest.mark.parametrize("operation", ["GetSecretValue", WRITE])
def test_a_run_that_fails_anywhere_leaves_all_or_nothing__and_the_next_does_the_rest(
    state: str,
    operation: str,
    error: Any,
    after: bool,
    request: pytest.FixtureRequest,
    another: Process,
    clock: ManualClock,
) -> None:
    secret = request.getfixturevalue(state)
    before = secret.read()
    with failing(operation, error, after=after), pytest.raises((Died, ClientError, BotoCoreError)):
        rotate(another())
    done = operation == WRITE and after
    between = secret.read()
    assert (between != before) == done
    clock.advance(10 * MINUTE)
    rotate(another())
    assert (secret.read() == between) == done
    assert len(live(secret)) == (2 if state == "due" else 1)


def test_a_reply_that_was_lost_is_no_second_key__when_the_call_is_repeated(due: SigningSecret) -> None:
    stored = due.read()
    keys = MasterKeys(keys=(*stored.keys.keys, MasterKey.of(stored.successor, b"2" * 32, stored.keys.keys[0].made_at)))
    assert due.replace(stored, keys)
    assert due.replace(stored, keys)
    assert live(due) == ["first", stored.successor]


def test_a_job_that_may_not_write_fails__and_says_so(due: SigningSecret, runtime: Runtime, logs: Lines) -> None:
    with failing(WRITE, refused("AccessDeniedException")), pytest.raises(ClientError):
        rotate(runtime)
    assert live(due) == ["first"]
    assert "AccessDenied" in json.dumps(logs())


def test_no_line_tells_a_key__through_a_whole_rotation(
    due: SigningSecret, runtime: Runtime, clock: ManualClock, logs: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {FIRST}
    for _ in range(4):
        keys |= {each.key for each in due.read().keys.keys}
        rotate(runtime)
        clock.advance(runtime.timings.signing_rotation)
    everything = f"{logs()} {capsys.readouterr()}"
    assert len(keys) == 3
    assert not [key for key in keys if base64.b64encode(key).decode() in everything or str(key) in everything]


# Under load

ENDPOINT = "webhook-1"


@dataclass
class Sender:
    """One process that delivers, with a copy of the keys as old as it may be."""

    runtime: Runtime

    def send(self, number: int) -> dict[str, Any]:
        body = f"delivery {number}".encode()
        timestamp = epoch_seconds(self.runtime.clock.now())
        keys = self.runtime.use(SigningKeys).keys_of(ENDPOINT)
        signatures = signature_header(keys, message_id=f"event-{number}", timestamp=timestamp, body=body)
        return {"message_id": f"event-{number}", "timestamp": str(timestamp), "signatures": signatures, "body": body}


@dataclass
class Receiver:
    """An endpoint that asks for its secrets as seldom as it may, and of a process whose copy may be old."""

    runtime: Runtime
    secrets: list[str] = field(default_factory=list)
    fetched_at: float = float("-inf")

    def refresh(self) -> None:
        timings, now = self.runtime.timings, self.runtime.clock.monotonic()
        if now - self.fetched_at >= timings.signing_overlap - timings.signing_key_cache - HOUR:
            self.secrets = [each.secret for each in self.runtime.use(SigningKeys).keys_of(ENDPOINT)]
            self.fetched_at = now

    def take(self, delivery: dict[str, Any]) -> None:
        verify(self.secrets, **delivery, now=self.runtime.clock.now())


FIRST_FETCHES = {"early": 0, "before": 90 * DAY - MINUTE, "after": 90 * DAY + MINUTE}


@pytest.mark.parametrize("first_fetch", generated.examples(few=["before"], all=list(FIRST_FETCHES)))
@pytest.mark.usefixtures("secret")
def test_no_delivery_is_refused__through_a_whole_rotation(
    first_fetch: str, another: Process, runtime: Runtime, clock: ManualClock
) -> None:
    senders, receiver = [Sender(another()) for _ in range(3)], Receiver(another())
    signed, numbers, timings = set(), count(), runtime.timings
    receiver.refresh()
    receiver.fetched_at = FIRST_FETCHES[first_fetch] - timings.signing_overlap
    for pause in _moments(timings.signing_rotation, timings.signing_overlap):
        clock.advance(pause)
        rotate(runtime)
        receiver.refresh()
        for sender in senders[: 1 + next(numbers) % 3]:
            delivery = sender.send(next(numbers))
            signed.add(delivery["signatures"].count("v1,"))
            receiver.take(delivery)
    assert signed == {1, 2}
    (key,) = runtime.use(SigningSecret).read().keys.keys
    assert key.id != "first"


def _moments(*changes: float) -> Iterator[float]:
    """Answer pauses: of half a day, and of a minute around each change."""
    for change in changes:
        quiet = change - 20 * MINUTE
        yield from [quiet / 30] * 30
        yield from [MINUTE] * 40
    yield from [timedelta(hours=8).total_seconds()] * 30
