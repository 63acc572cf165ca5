"""Calls that carry several entries to AWS: what became of each, and which one a refusal of all was about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mailroom.failures import DENIED, NOT_THERE, REFUSED_BY_POLICY, Failure, FailureKind, failure_of, failure_of_code
from mailroom.publishers.publisher import SENT, NotTaken, Outcome

E = TypeVar("E")

_UNANSWERED = Failure(FailureKind.UNAVAILABLE, "Unanswered", "there was no answer for this entry")
_REFUSED = DENIED | REFUSED_BY_POLICY


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
    unanswered = NotTaken.of(_UNANSWERED) if done or failed else _UNANSWERED
    return [SENT if entry["Id"] in done else failed.get(entry["Id"], unanswered) for entry in entries]


def failure_of_entry(refused: Mapping[str, Any]) -> Failure:
    """Judge one entry's error: by its code, and one that nobody knows by whose fault it is said to be.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_BatchResultErrorEntry.html
    """
    failure = failure_of_code(refused["Code"], refused.get("Message", ""))
    if failure.kind is FailureKind.TRANSIENT and not refused.get("SenderFault"):
        failure = replace(failure, kind=FailureKind.UNAVAILABLE)
    return by_itself(failure)


def by_itself(failure: Failure) -> Failure:
    """Return what a failure means that is one entry's, in a call that went well: it tells nothing of the others."""
    return NotTaken.of(failure) if failure.kind is FailureKind.UNAVAILABLE else failure


def advised(outcome: Outcome, place: str, *, remedy: str, refused_after: float) -> Outcome:
    """Return an outcome, and with a refusal by the place itself what to do about it.

    An entry that was refused by itself waits by itself: docs/decisions/unroutable.md.

    Parameters
    ----------
    remedy
        What to do about a place that does not take us for who we are.
    refused_after
        Seconds after which an event is tried again that was refused by itself.
    """
    if not isinstance(outcome, Failure) or outcome.type not in NOT_THERE | _REFUSED:
        return outcome
    if outcome.type in NOT_THERE:
        advice = f"{place} is not there: make it, or name another in publisher_url"
    elif outcome.type in REFUSED_BY_POLICY:
        advice = f"the policy of {place} does not take this event: allow its type and source there, or discard it"
    else:
        advice = f"{place} refuses us: {remedy}"
    message = f"{advice} ({outcome.message})"
    if not isinstance(outcome, NotTaken) or outcome.type not in _REFUSED:
        return replace(outcome, message=message)
    if outcome.type in REFUSED_BY_POLICY:
        return Failure(FailureKind.TRANSIENT, outcome.type, message, retry_after=refused_after)
    return replace(outcome, message=message, retry_after=refused_after)  # if all are, it is the place that is closed


def allow(actions: Sequence[str]) -> str:
    """Answer what to do about a place of AWS that refuses us."""
    return f"allow {' and '.join(actions)} to the relay, in the place's own policy too if it is another account's"


def is_refusal(outcome: Outcome) -> bool:
    """Answer whether the place is not there, or does not take us for who we are."""
    return isinstance(outcome, Failure) and outcome.type in NOT_THERE | DENIED
