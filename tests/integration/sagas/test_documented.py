"""`docs/sagas.md` keeps to the code: its saga runs, and its output is what the command says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from app.owners import Owner
from mailroom.clients import Call
from mailroom.declarations import discover
from mailroom.needs import Need
from mailroom.runtime import Runtime
from mailroom.saga import Saga
from mailroom.saga_row import Status
from mailroom.testing import ManualClock
from tests.faults import cancelled, failing

from ..cli.conftest import Command, Stage, mailroom, stage  # noqa: F401 - fixtures
from ..outbox.conftest import Outbox, outbox  # noqa: F401 - fixtures
from .conftest import Line
from .test_transfer import Moves, moves  # noqa: F401 - a fixture

PAGE = (Path(__file__).parents[3] / "docs/sagas.md").read_text()


class Payments:
    """Somebody else's service: it charges once per key, and loses its answer when it is told to."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.refunds: set[str] = set()
        self.answers = True

    @classmethod
    def needs(cls, runtime: Runtime) -> tuple[Need, ...]:
        return ()

    @classmethod
    def connect(cls, runtime: Runtime) -> Self:
        return cls()

    def charge(self, owner_id: str, cents: int, *, key: str) -> str:
        self.charges[key] = cents
        if not self.answers:
            raise TimeoutError("no answer")
        return f"receipt of {key}"

    def refund(self, charge: str, *, key: str) -> None:
        self.refunds |= {charge} & set(self.charges)


@pytest.fixture
def purchase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Saga[Any]]:
    """The saga of the page, in a file of a package of its own."""
    (source,) = re.findall(r"```python\n(\"\"\".*?)```", PAGE, re.DOTALL)
    module = ModuleType("app.payments")
    module.Payments = Payments  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app.payments", module)
    package = tmp_path / "documented_sagas"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "purchase.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = discover("documented_sagas", Saga)
    yield found
    for name in ("documented_sagas", "documented_sagas.purchase"):
        sys.modules.pop(name, None)


@pytest.fixture
def payments(runtime: Runtime) -> Payments:
    payments = Payments()
    runtime.provide(Payments, payments)
    return payments


def begin(line: Line, purchase: Saga[Any]) -> str:
    line.deploy(purchase)
    return line.start(purchase, purchase.data(owner_id="a", cents=500, places=5))


def test_the_saga_of_the_page_runs(line: Line, purchase: Saga[Any], payments: Payments) -> None:
    Owner("a", repo_quota=10).save()
    saga_id = begin(line, purchase)
    line.run()
    assert line.row(saga_id).status == Status.COMPLETED
    assert (Owner.get("a", consistent_read=True).repo_quota, len(payments.charges), payments.refunds) == (15, 1, set())
    assert "receipt of" in line.row(saga_id).data


def test_the_saga_of_the_page_gives_the_money_back(line: Line, purchase: Saga[Any], payments: Payments) -> None:
    saga_id = begin(line, purchase)  # for an owner without a row
    line.run()
    assert line.row(saga_id).status == Status.COMPENSATED
    assert payments.refunds == set(payments.charges) != set()


def test_the_saga_of_the_page_gives_back_what_nobody_told_it_of(
    line: Line, purchase: Saga[Any], payments: Payments
) -> None:
    payments.answers = False
    saga_id = begin(line, purchase)
    line.run()
    assert line.row(saga_id).status == Status.COMPENSATED
    assert payments.refunds == set(payments.charges) != set()


def test_the_output_of_the_page_is_what_the_command_says(
    moves: Moves, mailroom: Command, stage: Stage, clock: ManualClock
) -> None:
    repo_id = moves.create("team-1")
    saga_id = moves.begin(repo_id, "team-2")
    moves.step()
    moves.api.delete(f"/api/v1/repos/{repo_id}")
    clock.advance(2)
    moves.step()
    with failing(updates_an_owner, incorrect_type, times=99):
        moves.line.run()
    moves.line.bury(stage.queues)
    clock.advance(60)
    for command in (("list",), ("show", saga_id), ("retry", saga_id, "--why", "the count is a number again")):
        said = mailroom("saga", *command).out.replace("--stage test", "--stage prod").strip()
        assert without_ids(said) in without_ids(PAGE), f"docs/sagas.md should show:\n{said}"


def without_ids(text: str) -> str:
    """Leave out what is another one each time."""
    return re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}(-\d\d)?", "ID", text)


def updates_an_owner(call: Call) -> bool:
    return call.operation == "TransactWriteItems" and any(map(is_of_owner, call.parameters["TransactItems"]))


def is_of_owner(item: dict[str, Any]) -> bool:
    return bool(item.get("Update", {}).get("TableName") == Owner.table_name())


def incorrect_type(call: Call) -> BaseException:
    """Answer as AWS does, where a count is no number; moto says the same outside the reasons."""
    reason = {"Code": "ValidationError", "Message": "An operand in the update expression has an incorrect data type"}
    items = call.parameters["TransactItems"]
    return cancelled(*(reason if is_of_owner(item) else None for item in items))(call)
