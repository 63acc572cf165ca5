"""Calls that carry several entries to AWS: what became of each, and which one a refusal of all was about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mailroom.failures import DENIED, NOT_THERE, Failure, FailureKind, failure_of, failure_of_code
from mailroom.publishers.publisher import SENT, Outcome

E = TypeVar("E")

_UNANSWERED = Failure(FailureKind.UNAVAILABLE, "Unanswered", "there was no answer for this entry")


def send_each(entries: Sequence[E], call: Callable[[Sequence[E]], list[Outcome]]) -> list[Outcome]:
    """Answer what became of each entry, in their order; never raises.

    A call that is refused as a whole condemns none of its entries: halves of it find those at fault.

    Parameters
    ----------
    call
        Sends entries, and answers or raises.
    """
    try:
        return call(entries)
    except Exception as error:
        failure = failure_of(error)
    if failure.kind is FailureKind.UNAVAILABLE or len(entries) == 1:
        return [failure] * len(entries)
    half = len(entries) // 2
    return send_each(entries[:half], call) + send_each(entries[half:], call)


def outcomes_by_id(entries: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> list[Outcome]:
    """Read an answer that tells by `Id` what became of each entry, as those of SQS and SNS do."""
    done = {each["Id"] for each in answer.get("Successful", ())}
    failed = {each["Id"]: failure_of_entry(each) for each in answer.get("Failed", ())}
    return [SENT if entry["Id"] in done else failed.get(entry["Id"], _UNANSWERED) for entry in entries]


def failure_of_entry(refused: Mapping[str, Any]) -> Failure:
    """Judge one entry's error: by its code, and one that nobody knows by whose fault it is said to be.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_BatchResultErrorEntry.html
    """
    failure = failure_of_code(refused["Code"], refused.get("Message", ""))
    if failure.kind is FailureKind.TRANSIENT and not refused.get("SenderFault"):
        return replace(failure, kind=FailureKind.UNAVAILABLE)
    return failure


def advised(outcome: Outcome, place: str, *, remedy: str) -> Outcome:
    """Answer an outcome, and with a refusal by the place itself what to do about it.

    Parameters
    ----------
    remedy
        What to do about a place that does not take us for who we are.
    """
    if not isinstance(outcome, Failure) or not is_refusal(outcome):
        return outcome
    if outcome.type in NOT_THERE:
        advice = f"{place} is not there: make it, or name another in publisher_url"
    else:
        advice = f"{place} refuses us: {remedy}"
    return replace(outcome, message=f"{advice} ({outcome.message})")


def allow(actions: Sequence[str]) -> str:
    """Answer what to do about a place of AWS that refuses us."""
    return f"allow {' and '.join(actions)} to the relay, in the place's own policy too if it is another account's"


def is_refusal(outcome: Outcome) -> bool:
    """Answer whether the place is not there, or does not take us for who we are."""
    return isinstance(outcome, Failure) and outcome.type in NOT_THERE | DENIED
