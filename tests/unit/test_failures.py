"""Failures: every error is judged once, told without payloads, and fits the room that a row has for it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from botocore import exceptions as botocore_errors
from botocore.exceptions import ClientError
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError
from pynamodb.exceptions import DoesNotExist, PutError, TransactWriteError

from mailroom.failures import (
    MAX_STORED_BYTES,
    Failure,
    FailureKind,
    Permanent,
    RetryAfter,
    Unavailable,
    failure_of,
    failure_of_code,
)

TRANSIENT, PERMANENT, UNAVAILABLE = FailureKind.TRANSIENT, FailureKind.PERMANENT, FailureKind.UNAVAILABLE

any_text = st.text(st.characters(codec=None, exclude_categories=()), max_size=3000)
"""Text of every kind, lone surrogates and control characters included."""


def client_error(code: str, *, status: int = 400, message: str = "told by AWS") -> ClientError:
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "AnOperation",
    )


def invalid(model: type[BaseModel], given: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(given)
    return caught.value


class Payload(BaseModel):
    count: int


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Pets(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


# What an error means


@pytest.mark.parametrize(
    "error",
    [Permanent("never"), invalid(Payload, {"count": "x"}), botocore_errors.ParamValidationError(report="wrong")],
    ids=repr,
)
def test_a_failure_is_permanent__when_the_work_itself_is_wrong(error: Exception) -> None:
    assert failure_of(error).kind is PERMANENT


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("down"),
        ConnectionResetError("reset"),
        TimeoutError("too slow"),
        botocore_errors.EndpointConnectionError(endpoint_url="https://aws.example"),
        botocore_errors.ConnectTimeoutError(endpoint_url="https://aws.example"),
        botocore_errors.ReadTimeoutError(endpoint_url="https://aws.example"),
        botocore_errors.ConnectionClosedError(endpoint_url="https://aws.example"),
        botocore_errors.SSLError(endpoint_url="https://aws.example", error="handshake"),
        botocore_errors.ProxyConnectionError(proxy_url="https://proxy.example"),
        botocore_errors.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        botocore_errors.NoCredentialsError(),
        botocore_errors.PartialCredentialsError(provider="env", cred_var="secret"),
        botocore_errors.CredentialRetrievalError(provider="env", error_msg="timeout"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_is_nobodys_fault__when_the_other_side_cannot_be_reached(error: Exception) -> None:
    assert failure_of(error).kind is UNAVAILABLE


@pytest.mark.parametrize(
    "error", [ValueError("odd"), KeyError("k"), RuntimeError(), DoesNotExist(), client_error("Unheard")], ids=repr
)
def test_a_failure_is_worth_another_attempt__when_nothing_more_is_known(error: Exception) -> None:
    assert failure_of(error).kind is TRANSIENT


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ThrottlingException", UNAVAILABLE),
        ("ProvisionedThroughputExceededException", UNAVAILABLE),
        ("RequestThrottled", UNAVAILABLE),
        ("SlowDown", UNAVAILABLE),
        ("InternalFailure", UNAVAILABLE),
        ("InternalServerError", UNAVAILABLE),
        ("ServiceUnavailable", UNAVAILABLE),
        ("AccessDenied", UNAVAILABLE),
        ("AccessDeniedException", UNAVAILABLE),
        ("NotAuthorizedForSourceException", UNAVAILABLE),
        ("ExpiredTokenException", UNAVAILABLE),
        ("AccountSendingPausedException", UNAVAILABLE),
        ("ConfigurationSetDoesNotExist", UNAVAILABLE),
        ("NoSuchBucket", UNAVAILABLE),
        ("UnrecognizedClientException", UNAVAILABLE),
        ("ResourceNotFoundException", UNAVAILABLE),
        ("AWS.SimpleQueueService.NonExistentQueue", UNAVAILABLE),
        ("500", UNAVAILABLE),
        ("502", UNAVAILABLE),
        ("503", UNAVAILABLE),
        ("504", UNAVAILABLE),
        ("429", UNAVAILABLE),
        ("ValidationException", PERMANENT),
        ("MalformedDetail", PERMANENT),
        ("InvalidArgument", PERMANENT),
        ("InvalidMessageContents", PERMANENT),
        ("TransactionConflictException", TRANSIENT),
        ("ConditionalCheckFailedException", TRANSIENT),
        ("418", TRANSIENT),
        ("Unheard", TRANSIENT),
    ],
)
def test_an_aws_error_is_judged_by_its_code__of_a_call_and_of_an_entry(code: str, kind: FailureKind) -> None:
    assert failure_of(client_error(code)).kind is kind
    assert failure_of_code(code, "told by AWS").kind is kind


@pytest.mark.parametrize("status", [200, 400, 404, 500, 503])
@pytest.mark.parametrize("code", ["ThrottlingException", "ValidationException", "Unheard"])
def test_the_http_status_says_nothing__about_what_an_error_means(code: str, status: int) -> None:
    assert failure_of(client_error(code, status=status)) == failure_of(client_error(code, status=400))


def test_an_aws_error_is_told_by_its_code_and_message__and_not_by_its_class() -> None:
    failure = failure_of(client_error("MalformedDetail", message="Detail is malformed."))

    assert (failure.type, failure.message) == ("MalformedDetail", "Detail is malformed.")


def test_an_answer_without_a_code_is_still_a_failure__worth_another_attempt() -> None:
    assert failure_of(ClientError({}, "AnOperation")).kind is TRANSIENT


@pytest.mark.parametrize("wrapper", [PutError, TransactWriteError])
@pytest.mark.parametrize(
    "cause",
    [
        client_error("ThrottlingException"),
        client_error("ValidationException"),
        botocore_errors.EndpointConnectionError(endpoint_url="https://aws.example"),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_pynamodb_is_looked_through__to_the_error_behind_it(wrapper: Any, cause: Exception) -> None:
    assert failure_of(wrapper("failed", cause)) == failure_of(cause)


def test_an_error_that_carries_its_failure_is_taken_at_its_word() -> None:
    class Carrier(Exception):
        failure = Failure(PERMANENT, "Known", "known before")

    assert failure_of(Carrier()) is Carrier.failure


def test_a_failure_says_when_to_come_back__if_the_code_asked_for_it() -> None:
    failure = failure_of(RetryAfter(90, "the quota is used up"))

    assert (failure.kind, failure.retry_after, failure.message) == (TRANSIENT, 90, "the quota is used up")


class Refused(Permanent):
    """An application's own."""


@pytest.mark.parametrize("error", [Permanent("the quota is used up"), Refused("the quota is used up")])
def test_the_words_of_a_permanent_are_the_applications_own__also_after_they_were_stored(error: Exception) -> None:
    failure = Failure.from_json(failure_of(error).to_json())

    assert (failure.own, failure.message) == (True, "the quota is used up")


@pytest.mark.parametrize(
    "error",
    [
        client_error("ValidationException"),
        PutError("failed", client_error("ValidationException")),
        TransactWriteError("failed", client_error("ItemCollectionSizeLimitExceeded")),
        invalid(Payload, {}),
        ValueError("no"),
        RetryAfter(1),
        Unavailable("down"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_words_of_others_are_not_the_applications_own__permanent_or_not(error: Exception) -> None:
    assert not failure_of(error).own


def test_what_was_stored_before_it_said_whose_words_it_has_is_read__as_others_words() -> None:
    stored = json.loads(failure_of(Permanent("no")).to_json())
    del stored["own"]

    assert not Failure.from_json(json.dumps(stored)).own


def test_an_error_without_a_text_is_told_by_its_class() -> None:
    assert failure_of(RuntimeError()).message == "RuntimeError"


# What it tells


@pytest.mark.parametrize(
    ("model", "payload"),
    [(Payload, {"count": "TOP-SECRET"}), (Payload, "TOP-SECRET"), (Pets, {"pet": {"kind": "TOP-SECRET"}})],
    ids=["a field", "the whole", "the tag of a union"],
)
def test_the_input_is_not_in_the_message__when_it_does_not_fit(model: type[BaseModel], payload: Any) -> None:
    assert "TOP-SECRET" not in failure_of(invalid(model, payload)).to_json()


def test_the_message_names_the_field__that_does_not_fit() -> None:
    assert failure_of(invalid(Payload, {})).message == "count: Field required"


# What is stored


@given(kind=st.sampled_from(FailureKind), error_type=any_text, message=any_text, retry_after=st.floats(0, 1e9))
@example(kind=UNAVAILABLE, error_type="\x01" * 100, message="\x01" * 3000, retry_after=1 / 3)
@example(kind=UNAVAILABLE, error_type="😀" * 100, message="😀" * 3000, retry_after=1 / 3)
@example(kind=UNAVAILABLE, error_type='"' * 100, message="\\" * 3000, retry_after=1 / 3)
@example(kind=UNAVAILABLE, error_type="\ud800" * 100, message="\udfff" * 3000, retry_after=1 / 3)
def test_a_failure_fits_its_room_in_a_row__whatever_it_says(
    kind: FailureKind, error_type: str, message: str, retry_after: float
) -> None:
    stored = Failure(kind, error_type, message, retry_after=retry_after).to_json()

    assert len(stored.encode()) <= MAX_STORED_BYTES


@given(kind=st.sampled_from(FailureKind), error_type=any_text, message=any_text, retry_after=st.none() | st.floats(0))
def test_a_failure_reads_back_as_it_was_stored(
    kind: FailureKind, error_type: str, message: str, retry_after: float | None
) -> None:
    failure = Failure(kind, error_type, message, retry_after=retry_after)

    assert Failure.from_json(failure.to_json()) == failure


def test_a_long_message_keeps_its_beginning__and_shows_that_it_was_cut() -> None:
    message = Failure(TRANSIENT, "Long", "begins here " + "x" * 5000).message

    assert message.startswith("begins here xxx")
    assert message.endswith("x…")


def test_a_short_message_stays_as_it_is() -> None:
    assert Failure(TRANSIENT, "Short", "tab\tünïcode 😀").message == "tab\tünïcode 😀"


def test_a_lone_surrogate_becomes_a_question_mark__since_nothing_can_store_it() -> None:
    assert Failure(TRANSIENT, "Odd", "a\ud800b").message == "a?b"


def test_the_stored_form_names_its_parts__for_whoever_reads_the_row() -> None:
    stored = json.loads(Failure(PERMANENT, "Type", "message").to_json())

    assert stored == {
        "kind": "permanent",
        "type": "Type",
        "message": "message",
        "fingerprint": Failure(PERMANENT, "Type", "message").fingerprint,
        "retry_after": None,
        "own": False,
    }


# What groups them


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no row 17", "no row 4"),
        ("took 1.5 s", "took 12 s"),
        ("balance is -5", "balance is 70"),
        ("owner 'a' is gone", "owner 'b c' is gone"),
        ('owner "a" is gone', 'owner "" is gone'),
        ("can't find owner 'a' now", "can't find owner 'b' now"),
        ("repos/01JDW3NDEKTSV4RRFFQ69G5FAV is gone", "repos/01JDW3NDEKTSV4RRFFQ69G5FB0 is gone"),
        ("request 5e1b7c1e-59a2-4b47-9a54-7d6b6c1e9f10 failed", "request 0c7c9dd6-7f4e-4f1b-8d84-0a4f3a0f2a11 failed"),
        ("at 2030-01-01T00:00:00.000Z", "at 2031-12-31T23:59:59.999Z"),
        (f"cannot read '{'x' * 3000}' as a number", f"cannot read '{'y' * 2000}' as a number"),
        (f"cannot read '{'x' * 50000}", f"cannot read '{'y' * 40000}"),
    ],
)
def test_failures_share_a_fingerprint__when_only_ids_numbers_and_quoted_values_differ(one: str, other: str) -> None:
    assert Failure(TRANSIENT, "E", one).fingerprint == Failure(TRANSIENT, "E", other).fingerprint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("E", "the owner is gone"), ("E", "the repository is gone")),
        (("E", "no row 17"), ("E", "no table 17")),
        (("E", "the same text"), ("F", "the same text")),
        (("E", "can't open the file"), ("E", "can't close the file")),
        (("E", "the row isn't 'new' yet"), ("E", "the row isn't 'new' any more")),
    ],
)
def test_failures_have_fingerprints_of_their_own__when_words_differ(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    assert Failure(TRANSIENT, *one).fingerprint != Failure(TRANSIENT, *other).fingerprint


def test_a_fingerprint_outlives_the_process__so_that_it_groups_rows() -> None:
    assert Failure(TRANSIENT, "E", "no row 17").fingerprint == "cd70bbc50646"


@given(message=any_text)
def test_a_stored_fingerprint_is_kept__and_not_made_anew(message: str) -> None:
    failure = Failure(TRANSIENT, "E", message)

    assert Failure.from_json(failure.to_json()).fingerprint == failure.fingerprint
