"""Faults: an AWS call that fails, before or after it took effect, and a process that dies there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from mailroom import clients
from mailroom.clients import Call, observed


class Died(BaseException):
    """The process is gone: nothing of ours may catch this."""


def died(_: Call) -> BaseException:
    return Died()


def timed_out(_: Call) -> BaseException:
    return ReadTimeoutError(endpoint_url="https://aws.example")


def refused(code: str) -> Callable[[Call], BaseException]:
    return lambda call: ClientError({"Error": {"Code": code, "Message": "injected"}}, call.operation)


def cancelled(*reasons: dict[str, str] | None) -> Callable[[Call], BaseException]:
    """Cancel a transaction as DynamoDB does: a reason for each of its items in turn, None where there is none."""

    def error(call: Call) -> BaseException:
        cancellation = refused("TransactionCanceledException")(call)
        answered = [reason or {"Code": "None"} for reason in reasons]
        cancellation.response["CancellationReasons"] = answered  # type: ignore[attr-defined]
        return cancellation

    return error


throttled = refused("ThrottlingException")


def send_first(call: Call) -> None:
    """Send what a client is about to send, as its first request whose answer was lost: then it meets its own write.

    Whoever observes the client's calls sees this one too.
    """
    with suppress(ClientError):  # nobody hears what it was answered
        clients.dynamodb()._make_api_call(call.operation, dict(call.parameters))  # type: ignore[attr-defined]


def is_conditional(call: Call) -> bool:
    """Answer whether a repetition of the call can be refused because of the call itself."""
    if call.operation == "TransactWriteItems":
        return "ClientRequestToken" not in call.parameters
    return call.operation in {"PutItem", "UpdateItem", "DeleteItem"} and "ConditionExpression" in call.parameters


@dataclass
class AnswerLost:
    """Loses the answer to the first call of an operation, which the client sends again. It is a `CallObserver`."""

    operation: str
    calls: int = 0

    def before(self, call: Call) -> None:
        if call.operation == self.operation:
            self.calls += 1
            if self.calls == 1:
                send_first(call)

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...


@contextmanager
def answer_lost(operation: str) -> Iterator[AnswerLost]:
    """Let the first call of an operation inside the block take effect unheard, and be sent again by the client."""
    lost = AnswerLost(operation)
    with observed(lost):
        yield lost
    assert lost.calls, f"{operation} was never called"


@dataclass
class Fault:
    """Fails calls that match, a number of times, before or after they took effect. It is a `CallObserver`."""

    matches: Callable[[Call], bool]
    error: Callable[[Call], BaseException]
    late: bool
    times: int
    struck: list[Call] = field(default_factory=list)

    def before(self, call: Call) -> None:
        if len(self.struck) < self.times and self.matches(call):
            self.struck.append(call)
            if not self.late:
                raise self.error(call)

    def after(self, call: Call, answer: dict[str, Any]) -> None:
        if self.late and any(call is struck for struck in self.struck):
            raise self.error(call)


@contextmanager
def failing(
    matches: Callable[[Call], bool] | str,
    error: Callable[[Call], BaseException],
    *,
    after: bool = False,
    times: int = 1,
) -> Iterator[Fault]:
    """Make calls fail inside the block: those of an operation, or those that a predicate picks."""
    predicate = (lambda call: call.operation == matches) if isinstance(matches, str) else matches
    fault = Fault(predicate, error, late=after, times=times)
    with observed(fault):
        yield fault


def writes(request: str) -> Callable[[Call], bool]:
    """Pick BatchWriteItem calls with requests of a kind: `PutRequest` or `DeleteRequest`."""

    def matches(call: Call) -> bool:
        if call.operation != "BatchWriteItem":
            return False
        return any(request in entry for entries in call.parameters["RequestItems"].values() for entry in entries)

    return matches
