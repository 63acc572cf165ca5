"""The keys of endpoints: read from the stage's secret, kept for a while, never told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest

from mailroom import clients
from mailroom.failures import FailureKind, Unavailable, failure_of
from mailroom.master_keys import MalformedSecret
from mailroom.runtime import Runtime
from mailroom.signing_keys import SigningKeys, SigningSecret
from mailroom.telemetry import LogEvent
from mailroom.testing import ManualClock
from tests.faults import failing, refused, throttled, timed_out
from tests.log_lines import Lines

from .conftest import CallCounter, Process

SEED = "s3cr3t" * 10
READ = "GetSecretValue"
pytestmark = pytest.mark.usefixtures("secret")


@pytest.fixture
def secret(runtime: Runtime) -> None:
    """The stage's secret as it is made."""
    clients.secretsmanager().create_secret(
        Name=runtime.settings.signing_secret, SecretString=json.dumps({"seed": SEED})
    )


@pytest.fixture
def keys(runtime: Runtime) -> SigningKeys:
    return runtime.use(SigningKeys)


@pytest.fixture
def put(runtime: Runtime) -> Any:
    """Puts another value in the place of the secret."""

    def put_value(value: str) -> None:
        clients.secretsmanager().put_secret_value(SecretId=runtime.settings.signing_secret, SecretString=value)

    return put_value


def secrets(keys: SigningKeys, endpoint: str = "webhook-1") -> list[str]:
    return [each.secret for each in keys.keys_of(endpoint)]


def test_a_new_stage_has_a_key_at_once__the_same_in_every_process(keys: SigningKeys, another: Process) -> None:
    assert len(secrets(keys)) == 1
    assert secrets(keys) == secrets(another().use(SigningKeys))


def test_one_read_serves_every_endpoint__until_the_copy_is_old(
    keys: SigningKeys, calls: CallCounter, clock: ManualClock, runtime: Runtime
) -> None:
    many = {secrets(keys, f"webhook-{number}")[0] for number in range(50)}
    clock.advance(runtime.timings.signing_key_cache - 1)
    secrets(keys)
    assert (len(many), calls.counts[READ]) == (50, 1)
    clock.advance(1)
    secrets(keys)
    secrets(keys)
    assert calls.counts[READ] == 2


def test_the_copy_does_not_grow__however_many_endpoints_there_are(keys: SigningKeys) -> None:
    for number in range(100):
        keys.keys_of(f"webhook-{number}")
    assert not [value for value in vars(keys).values() if isinstance(value, dict | list)]


def test_threads_that_ask_at_once_read_once(keys: SigningKeys, calls: CallCounter) -> None:
    threads = [Thread(target=secrets, args=(keys,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls.counts[READ] == 1


@pytest.mark.parametrize(
    "error",
    [throttled, timed_out, refused("AccessDeniedException"), refused("Other")],
    ids=["throttled", "timed out", "denied", "other"],
)
def test_a_read_that_fails_leaves_the_older_copy_in_use__and_is_told(
    keys: SigningKeys, clock: ManualClock, runtime: Runtime, logs: Lines, error: Any
) -> None:
    before = secrets(keys)
    clock.advance(runtime.timings.signing_key_cache)
    with failing(READ, error, times=99) as fault:
        assert secrets(keys) == secrets(keys) == before
    assert len(fault.struck) == 1  # no sender waits at each delivery for what does not answer
    (line,) = [each for each in logs() if each["message"] == LogEvent.SIGNING_KEYS_UNREAD]
    assert (line["level"], line["signs_on"]) == ("WARNING", True)


def test_an_older_copy_is_used_until_the_overlap_is_over__and_not_a_moment_longer(
    keys: SigningKeys, clock: ManualClock, runtime: Runtime
) -> None:
    clock.advance(3600)  # the process is no longer young
    secrets(keys)
    with failing(READ, throttled, times=999):
        clock.advance(runtime.timings.signing_overlap - 1)
        assert secrets(keys)
        clock.advance(1)
        with pytest.raises(Unavailable):
            secrets(keys)
    assert secrets(keys)


def test_without_any_copy_there_is_nothing_to_sign_with__and_that_is_nobodys_fault(
    keys: SigningKeys, logs: Lines
) -> None:
    with failing(READ, throttled), pytest.raises(Unavailable) as caught:
        secrets(keys)
    assert failure_of(caught.value).kind is FailureKind.UNAVAILABLE
    assert [each["signs_on"] for each in logs()] == [False]
    assert secrets(keys)


def test_a_secret_that_is_not_there_is_told_by_name(runtime: Runtime, another: Process) -> None:
    clients.secretsmanager().delete_secret(SecretId=runtime.settings.signing_secret, ForceDeleteWithoutRecovery=True)
    with pytest.raises(Unavailable, match=r"the signing secret cannot be read: .*can't find"):
        secrets(another().use(SigningKeys))


def test_a_malformed_secret_stops_new_processes__and_those_that_know_the_keys_go_on(
    keys: SigningKeys, another: Process, clock: ManualClock, runtime: Runtime, put: Any
) -> None:
    before = secrets(keys)
    put('{"keys": []}')
    clock.advance(runtime.timings.signing_key_cache)
    assert secrets(keys) == before
    with pytest.raises(Unavailable, match="malformed"):
        secrets(another().use(SigningKeys))


def test_another_seed_replaces_all_keys__in_every_process_within_the_cache(
    keys: SigningKeys, another: Process, clock: ManualClock, runtime: Runtime, put: Any
) -> None:
    before = secrets(keys)
    put(json.dumps({"seed": "0123456789abcdef" * 4}))
    clock.advance(runtime.timings.signing_key_cache)
    after = secrets(keys)
    assert after == secrets(another().use(SigningKeys))
    assert (len(after), set(before) & set(after)) == (1, set())


def test_a_secret_of_bytes_is_malformed(runtime: Runtime) -> None:
    clients.secretsmanager().put_secret_value(SecretId=runtime.settings.signing_secret, SecretBinary=b"{}")
    with pytest.raises(MalformedSecret):
        runtime.use(SigningSecret).read()


@pytest.fixture
def everything_told(capsys: pytest.CaptureFixture[str], logs: Lines) -> Iterator[list[str]]:
    told: list[str] = []
    yield told
    everything = f"{told} {logs()} {capsys.readouterr()}"
    assert "s3cr3t" not in everything
    assert "whsec_" not in everything


def test_no_line_error_or_repr_tells_a_key(
    runtime: Runtime, clock: ManualClock, another: Process, put: Any, everything_told: list[str]
) -> None:
    keys = runtime.use(SigningKeys)
    for value in ("s3cr3t", '{"s3cr3t": 1}', '{"seed": "s3cr3t"}', '{"keys": [{"key": "s3cr3t"}]}'):
        everything_told += [repr(keys), str(vars(keys)), repr(keys.keys_of("webhook-1"))]
        put(value)
        clock.advance(runtime.timings.signing_key_cache)
        with pytest.raises(Unavailable) as caught:
            secrets(another().use(SigningKeys))
        everything_told += [str(caught.value), repr(caught.value), repr(caught.value.__cause__)]
