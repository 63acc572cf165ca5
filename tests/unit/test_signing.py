"""Signatures by Standard Webhooks: an independent implementation agrees, and whatever else comes is refused quietly."""

from __future__ import annotations

import base64
import hmac
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from mailroom import signing
from mailroom.signing import EndpointKey, SignatureRefused, signature_header, verify

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
TIMESTAMP = int(NOW.timestamp())
ID = "01JDW3NDEKTSV4RRFFQ69G5FAV-03"
BODY = '{"type":"repo.created","data":{"name":"żółw"}}'.encode()
CURRENT = EndpointKey.derive("key-1", b"1" * 32, "webhook-1")
FOLLOWING = EndpointKey.derive("key-2", b"2" * 32, "webhook-1")


def sign(*keys: EndpointKey, **others: Any) -> str:
    return signature_header(keys or [CURRENT], **{"message_id": ID, "timestamp": TIMESTAMP, "body": BODY, **others})


def check(*secrets: str, **others: Any) -> None:
    given = {"message_id": ID, "timestamp": str(TIMESTAMP), "signatures": sign(), "body": BODY, "now": NOW, **others}
    verify(secrets or [CURRENT.secret], **given)


def refused(*secrets: str, **others: Any) -> str:
    with pytest.raises(SignatureRefused) as caught:
        check(*secrets, **others)
    return str(caught.value)


# Keys


def test_an_endpoints_key_is_derived__the_same_every_time() -> None:
    assert EndpointKey.derive("key-1", b"1" * 32, "webhook-1") == CURRENT


def test_endpoints_have_different_keys__under_one_master_key() -> None:
    secrets = {EndpointKey.derive("key-1", b"1" * 32, f"webhook-{number}").secret for number in range(100)}
    assert len(secrets) == 100


def test_a_key_is_the_hmac_of_the_endpoints_id__in_the_specifications_form() -> None:
    key = base64.b64decode(CURRENT.secret.removeprefix("whsec_"), validate=True)
    assert key == hmac.digest(b"1" * 32, b"webhook-1", "sha256")


def test_a_key_does_not_show_its_secret() -> None:
    assert "whsec_" not in f"{CURRENT!r} {CURRENT}"


# What an independent implementation says


def test_an_independent_receiver_takes_what_we_sign() -> None:
    headers = {"webhook-id": ID, "webhook-timestamp": str(TIMESTAMP), "webhook-signature": sign(FOLLOWING, CURRENT)}
    with time_machine.travel(NOW, tick=False):
        for key in (CURRENT, FOLLOWING):
            assert Webhook(key.secret).verify(BODY, headers)["type"] == "repo.created"


def test_we_take_what_an_independent_sender_signs() -> None:
    signatures = Webhook(CURRENT.secret).sign(ID, NOW, BODY.decode())
    check(signatures=signatures)


def test_the_specifications_own_example_is_taken() -> None:
    # https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#signature-scheme
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    verify(
        [secret],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp="1614265330",
        signatures="v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        body=body,
        now=datetime.fromtimestamp(1614265330, UTC),
    )


# What is taken


@pytest.mark.parametrize("keys", [(CURRENT,), (CURRENT, FOLLOWING), (FOLLOWING, CURRENT)], ids=str)
def test_any_signature_that_fits_is_enough__in_any_order(keys: tuple[EndpointKey, ...]) -> None:
    check(CURRENT.secret, signatures=sign(*keys))


@pytest.mark.parametrize("secrets", [(CURRENT, FOLLOWING), (FOLLOWING, CURRENT)], ids=str)
def test_any_secret_that_fits_is_enough__in_any_order(secrets: tuple[EndpointKey, ...]) -> None:
    check(*(each.secret for each in secrets), signatures=sign(CURRENT))


BAD = [
    "v1,AAAA",
    "v1,",
    "v1",
    "",
    "v1,%%%",
    "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw",
    "v2,whatever",
    "v1,żółw",
    "v1,\udc80",
]


@pytest.mark.parametrize("bad", BAD)
def test_a_signature_that_does_not_fit_harms_none_that_does(bad: str) -> None:
    check(signatures=f"{bad} {sign()}")
    check(signatures=f"{sign()} {bad}")


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_a_timestamp_within_the_tolerance_is_taken(seconds: int) -> None:
    check(now=NOW + timedelta(seconds=seconds))


# What is refused


NONE_FITS = [
    *BAD,
    sign(FOLLOWING),
    sign().replace("v1,", "v1a,"),
    sign().replace("v1,", ""),
    f"v1,AAAA\t{sign()}",  # only a space stands between signatures
]


@pytest.mark.parametrize("bad", NONE_FITS)
def test_a_message_without_a_signature_that_fits_is_refused(bad: str) -> None:
    assert refused(signatures=bad) == "no webhook-signature fits"


def test_hexadecimal_is_no_signature() -> None:
    raw = base64.b64decode(sign().removeprefix("v1,"))
    refused(signatures=f"v1,{raw.hex()}")


@pytest.mark.parametrize("seconds", [-301, 301, -(10**9), 10**9])
def test_a_timestamp_beyond_the_tolerance_is_refused__though_the_signature_fits(seconds: int) -> None:
    assert "within 300 s" in refused(now=NOW + timedelta(seconds=seconds))


WIDE = {ord("0") + digit: 0xFF10 + digit for digit in range(10)}  # digits of other scripts are digits to `int` too
TIMES = ["", "abc", "NaN", "inf", "-1", "+1893499200", " 1893499200", "1893499200 ", "1893499200.0", "1_893_499_200"]


@pytest.mark.parametrize(
    "timestamp", [*TIMES, str(TIMESTAMP * 1000), "9" * 40, str(TIMESTAMP).translate(WIDE), "\udc80"]
)
def test_a_timestamp_that_is_none_is_refused(timestamp: str) -> None:
    assert "within 300 s" in refused(timestamp=timestamp)


@pytest.mark.parametrize("message_id", ["", "żółw", "with space", "with.dot", "\udc80", "x" * 257])
def test_a_message_id_that_is_none_is_refused(message_id: str) -> None:
    assert refused(message_id=message_id) == "the webhook-id is none"


def test_a_message_cannot_be_cut_elsewhere__so_that_it_reads_as_another() -> None:
    body = f"{TIMESTAMP}.{{}}".encode()
    signatures = sign(body=body)
    check(signatures=signatures, body=body)
    refused(signatures=signatures, message_id=f"{ID}.{TIMESTAMP}", body=b"{}")


@pytest.mark.parametrize("key", [b"", b"x" * 23])
def test_a_receiver_with_a_secret_that_can_be_guessed_takes_nothing__though_the_signature_fits(key: bytes) -> None:
    content = f"{ID}.{TIMESTAMP}.".encode() + BODY
    signature = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
    refused(f"whsec_{base64.b64encode(key).decode()}", signatures=f"v1,{signature}")


NO_SECRETS = ["", "whsec", "whsec_%%%", CURRENT.secret.removeprefix("whsec_")]


@pytest.mark.parametrize("secret", [*NO_SECRETS, CURRENT.secret[:20] + "%" + CURRENT.secret[20:]])
def test_a_receiver_whose_secret_is_none_takes_nothing(secret: str) -> None:
    assert "a secret of the receiver" in refused(secret)


def test_a_receiver_without_secrets_takes_nothing() -> None:
    with pytest.raises(SignatureRefused):
        verify([], message_id=ID, timestamp=str(TIMESTAMP), signatures=sign(), body=BODY, now=NOW)


def test_no_refusal_tells_a_secret_or_a_signature() -> None:
    told = [refused(signatures="v1,AAAA"), refused(timestamp="abc"), refused("whsec_%%%"), refused(message_id="")]
    assert not any(CURRENT.secret in each or sign() in each or "%%%" in each for each in told)


@given(at=st.integers(0, len(BODY) - 1), flip=st.integers(1, 255))
def test_a_changed_body_is_refused__whatever_byte_it_is(at: int, flip: int) -> None:
    changed = bytearray(BODY)
    changed[at] ^= flip
    refused(body=bytes(changed))


anything = st.text() | st.text(alphabet=st.characters(categories=None)) | st.sampled_from([ID, str(TIMESTAMP), sign()])


@given(
    secrets=st.lists(anything | st.just(CURRENT.secret), max_size=3),
    message_id=anything,
    timestamp=anything,
    signatures=anything | st.lists(anything).map(" ".join),
    body=st.binary() | st.just(BODY),
)
def test_whatever_comes_is_taken_or_refused__and_raises_nothing_else(
    secrets: list[str], message_id: str, timestamp: str, signatures: str, body: bytes
) -> None:
    try:
        verify(secrets, message_id=message_id, timestamp=timestamp, signatures=signatures, body=body, now=NOW)
    except SignatureRefused:
        return
    assert (message_id, timestamp, body) == (ID, str(TIMESTAMP), BODY)
    assert CURRENT.secret in secrets
    assert sign() in signatures.split(" ")


@given(
    body=st.binary(max_size=1000),
    masters=st.lists(st.binary(min_size=32, max_size=64), min_size=1, max_size=2),
    endpoint=st.text(min_size=1, alphabet=st.characters(codec="utf-8")),
)
def test_what_is_signed_is_taken__by_whoever_holds_any_of_the_keys(
    body: bytes, masters: list[bytes], endpoint: str
) -> None:
    keys = [EndpointKey.derive(str(number), master, endpoint) for number, master in enumerate(masters)]
    for key in keys:
        check(key.secret, signatures=sign(*keys, body=body), body=body)


def test_every_candidate_is_compared__whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(ours: bytes, theirs: bytes) -> bool:
        compared.append((ours, theirs))
        return hmac.compare_digest(ours, theirs)

    monkeypatch.setattr(signing, "compare_digest", compare)
    check(CURRENT.secret, FOLLOWING.secret, signatures=f"{sign(CURRENT, FOLLOWING)} v1,AAAA")
    assert len(compared) == 2 * 3
    assert all(isinstance(each, bytes) for pair in compared for each in pair)


# What cannot be signed


@pytest.mark.parametrize("message_id", ["", "with.dot", "żółw", "with space", "x" * 257])
def test_a_message_id_that_no_receiver_takes_is_not_signed(message_id: str) -> None:
    with pytest.raises(ValueError, match="message"):
        sign(message_id=message_id)


def test_nothing_is_signed_without_a_key() -> None:
    with pytest.raises(ValueError, match="no key"):
        signature_header([], message_id=ID, timestamp=TIMESTAMP, body=BODY)
