"""What deployed code would be denied: the actions on tables that it takes in tests, held against what is granted.

moto grants everything. Here each call is attributed to the edge that runs: the function that would make it on AWS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import pytest

from mailroom import idempotency, lease
from mailroom.clients import Call, observed
from mailroom.consumer_edge import ConsumerEdge
from mailroom.http.edge import Edge
from mailroom.job import JobEdge
from mailroom.needs import Access, Need
from mailroom.outbox.relay import Relay
from mailroom.row import Row
from mailroom.runtime import Runtime
from mailroom.unit_of_work import NEEDS_TO_PUBLISH

from .lagging_reads import callers, reader

Right = tuple[str, str]
"""An action of DynamoDB, and the short name of a table, `/` and the name of an index where it is one."""

_OF_ITEMS = {"ConditionCheck": "ConditionCheckItem", "Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem"}
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html"""


class Rights:
    """Who took which actions, and which of them nobody granted."""

    def __init__(self) -> None:
        self.used: dict[str, set[Right]] = defaultdict(set)
        self.denied: set[tuple[str, str, Right]] = set()
        """Who, in which function, and what."""
        self._at_work: list[tuple[str, set[Right]]] = []

    @contextmanager
    def attached(self) -> Iterator[Rights]:
        """Look at what the edges do inside the block."""
        with pytest.MonkeyPatch.context() as patch, observed(self):
            patch.setattr(JobEdge, "run", self._as(_of_job, JobEdge.run))
            patch.setattr(ConsumerEdge, "handle", self._as(_of_consumer, ConsumerEdge.handle))
            patch.setattr(Edge, "serve", self._as(_of_api, Edge.serve))
            patch.setattr(Relay, "drain", self._as(_of_relay, Relay.drain))
            yield self

    def used_by(self, act: Callable[[], Any]) -> set[Right]:
        """Do something as if it were an edge's work, and return what that took."""
        self._as(lambda _: ("it", set()), lambda _: act())(None)
        return self.used["it"]

    def check(self) -> None:
        """Fail if something was taken that is not granted."""
        assert not self.denied, f"AWS would deny this (who, where, what): {sorted(self.denied)}"

    def before(self, call: Call) -> None:
        if call.service != "dynamodb" or not self._at_work or _is_of_a_test():
            return
        who, granted = self._at_work[-1]
        taken = set(_taken(call))
        self.used[who] |= taken
        self.denied |= {(who, reader(), each) for each in taken - granted}

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...

    def _as(self, principal: Callable[[Any], tuple[str, set[Right]]], run: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run)
        def running(edge: Any, *args: Any, **more: Any) -> Any:
            # A relay within the sweep works with the sweep's rights, which have the relay's in them.
            at_work = self._at_work[-1] if run.__name__ == "drain" and self._at_work else principal(edge)
            self._at_work.append(at_work)
            try:
                return run(edge, *args, **more)
            finally:
                self._at_work.pop()

        return running


def granted(access: Access, runtime: Runtime, *more: Need) -> set[Right]:
    """Return what infra grants on tables for this access, and for these needs besides."""
    of_ports = (need for port in access.uses for need in port.needs(runtime))
    publishing = (NEEDS_TO_PUBLISH,) if access.publishes else ()
    needs = (*access.of_tables(), *publishing, *access.needs, *of_ports, *more)
    return {
        (action.removeprefix("dynamodb:"), _name(need.resource))
        for need in needs
        if isinstance(need, Need) and not isinstance(need.resource, str)
        for action in need.actions
    }


def _name(resource: Any) -> str:
    if isinstance(resource, type):
        return str(resource.Meta.short_name)  # type: ignore[attr-defined]
    return f"{resource._model.Meta.short_name}/{resource.Meta.index_name}"


def _of_job(edge: JobEdge) -> tuple[str, set[Right]]:
    return edge._declaration.name, granted(edge._declaration.access, edge._runtime, lease.NEEDS)


def _of_consumer(edge: ConsumerEdge) -> tuple[str, set[Right]]:
    return edge._declaration.name, granted(edge._declaration.access, edge._runtime, *edge._declaration.needs)


def _of_api(edge: Edge) -> tuple[str, set[Right]]:
    needs = (idempotency.NEEDS, idempotency.NEEDS_TO_FORGET)
    return "operations" if edge._strict else "api", granted(edge._access, edge._runtime, *needs)


def _of_relay(relay: Relay) -> tuple[str, set[Right]]:
    return "relay", granted(Access(uses=(Relay,)), relay._runtime)


def _is_of_a_test() -> bool:
    """Answer whether a test makes the present call in the middle of an edge's work, as an operator or a rival would."""
    for module in callers():
        if module.startswith("tests."):
            return module != __name__  # which stands around each edge
    return False


def _taken(call: Call) -> Iterator[Right]:
    """Return the actions that IAM is asked for at a call."""
    shorts = {deployed: short for short, deployed in Row.deployed.items()}
    asked = call.parameters
    if call.operation == "TransactWriteItems":
        for item in asked["TransactItems"]:
            ((kind, about),) = item.items()
            yield _OF_ITEMS[kind], shorts[about["TableName"]]
        return
    index = f"/{asked['IndexName']}" if "IndexName" in asked else ""
    for table in asked["RequestItems"] if "RequestItems" in asked else [asked["TableName"]]:
        yield call.operation, f"{shorts[table]}{index}"
