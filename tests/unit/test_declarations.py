"""Declarations: found in every module of a package, loaded by one name, and no two the same."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import app.consumers
from app.consumers.notifications import notifications
from app.events import RepoCreated, RepoRenamed
from app.owners import Owner
from app.repos import Repo
from mailroom import jobs
from mailroom.consumer import Consumer, consumer
from mailroom.declarations import DeclarationError, discover, load
from mailroom.idempotency import IdempotencyRow
from mailroom.job import Job, job
from mailroom.needs import Access, Need, Port
from mailroom.outbox.event import Event, Part
from mailroom.saga import Saga
from mailroom.schedule import ScheduleError

HEADER = """
from mailroom.consumer import consumer
from mailroom.job import job
from mailroom.outbox.event import Event
from mailroom.schedule import Every

class Happened(Event, type="thing.happened"):
    pass
"""
CONSUMER = """
@consumer(on=Happened)
def {name}(event, work):
    pass
"""
JOB = """
@job(schedule=Every(minutes=1))
def {name}(work):
    pass
"""

SAGA = """
from pydantic import BaseModel
from mailroom.saga import Step, saga

class Data(BaseModel):
    pass

def go(data, call):
    pass

{name} = saga("{name}", data=Data, steps=[Step(go)])
"""

Package = Callable[..., str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Makes a package of modules, each given by its source."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def make(**modules: str) -> str:
        folder = tmp_path / "declared"
        folder.mkdir()
        (folder / "__init__.py").touch()
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(HEADER + source)
        return "declared"

    yield make
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "declared":
            del sys.modules[name]


def test_every_declaration_of_a_kind_is_found__by_name(package: Package) -> None:
    name = package(b=CONSUMER.format(name="zebra"), a=CONSUMER.format(name="ape") + JOB.format(name="yak"))

    assert [found.name for found in discover(name, Consumer)] == ["ape", "zebra"]
    assert [found.name for found in discover(name, Job)] == ["yak"]


def test_the_examples_own_declarations_are_found() -> None:
    assert notifications in discover(app.consumers.__name__, Consumer)
    assert {"cleanup", "outbox_relay"} <= {found.name for found in discover(jobs.__name__, Job)}


def test_a_declaration_is_found_once__when_another_module_imports_it(package: Package) -> None:
    name = package(a=CONSUMER.format(name="ape"), b="from declared.a import ape")

    assert [found.module for found in discover(name, Consumer)] == ["declared.a"]


def test_a_saga_is_found_once__though_another_module_imports_it(package: Package) -> None:
    name = package(b=SAGA.format(name="yonder"), a="from declared.b import yonder", c="from declared.b import yonder")

    assert [found.name for found in discover(name, Saga)] == ["yonder"]


def test_two_sagas_of_one_name_are_refused(package: Package) -> None:
    name = package(a=SAGA.format(name="yonder"), b=SAGA.format(name="yonder"))

    with pytest.raises(DeclarationError, match=r"declared\.b and declared\.a both declare 'yonder'"):
        discover(name, Saga)


def test_two_declarations_of_one_name_are_refused__and_both_places_named(package: Package) -> None:
    name = package(a=CONSUMER.format(name="ape"), b=CONSUMER.format(name="ape"))

    with pytest.raises(DeclarationError, match=r"declared\.b and declared\.a both declare 'ape'"):
        discover(name, Consumer)


def test_a_declaration_under_another_name_is_refused__since_its_function_would_not_find_it(package: Package) -> None:
    name = package(a="def send(event, work): ...\nnotify = consumer(on=Happened)(send)")

    with pytest.raises(DeclarationError, match=r"declared\.a: notify is the declaration of 'send'"):
        discover(name, Consumer)


def test_a_module_that_does_not_import_is_loud(package: Package) -> None:
    name = package(a="raise RuntimeError('broken')")

    with pytest.raises(RuntimeError, match="broken"):
        discover(name, Consumer)


def test_a_declaration_loads_by_its_own_target() -> None:
    assert load(notifications.target, Consumer) is notifications


@pytest.mark.parametrize(
    "target",
    ["app.consumers.notifications:nothing", "app.consumers.notifications:Owner", "app.consumers.notifications"],
)
def test_a_target_that_is_no_declaration_is_refused__and_named(target: str) -> None:
    with pytest.raises(DeclarationError, match=f"'{target}' is no consumer"):
        load(target, Consumer)


def test_a_declaration_of_another_kind_is_refused() -> None:
    with pytest.raises(DeclarationError, match="is no job"):
        load(notifications.target, Job)


def test_only_the_module_of_the_target_is_imported(package: Package) -> None:
    package(a=CONSUMER.format(name="ape"), b=CONSUMER.format(name="zebra"))

    load("declared.a:ape", Consumer)

    assert "declared.b" not in sys.modules


def test_a_declaration_calls_what_it_declares__as_its_own_tests_do(package: Package) -> None:
    package(a="calls = []\n@job(schedule=Every(minutes=1))\ndef note(work):\n    calls.append(work)")
    note = load("declared.a:note", Job)

    note("work")

    assert sys.modules["declared.a"].calls == ["work"]


def test_an_option_that_nobody_knows_is_refused(package: Package) -> None:
    name = package(a="@consumer(on=Happened, colour='red')\ndef ape(event, work): ...")

    with pytest.raises(TypeError, match="colour"):
        discover(name, Consumer)


@pytest.mark.parametrize(
    ("option", "value"), [("batch_size", 0), ("batch_size", 10_001), ("max_concurrency", 1), ("max_concurrency", 1_001)]
)
def test_a_number_that_sqs_or_lambda_refuses_fails_where_it_is_declared(option: str, value: int) -> None:
    with pytest.raises(DeclarationError, match=option):

        @consumer(on=RepoCreated, **{option: value})
        def eager(event: RepoCreated, work: object) -> None: ...


@pytest.mark.parametrize(
    ("option", "value"), [("batch_size", 1), ("batch_size", 10_000), ("max_concurrency", 2), ("max_concurrency", 1_000)]
)
def test_the_least_and_the_most_that_sqs_and_lambda_take_can_be_declared(option: str, value: int) -> None:
    @consumer(on=RepoCreated, **{option: value})
    def measured(event: RepoCreated, work: object) -> None: ...

    assert getattr(measured, option) == value


def test_a_consumer_may_touch_what_it_declares() -> None:
    class Torn(Part, type="test.torn"): ...

    class Printer(Port): ...

    touched: dict[str, Any] = {
        "reads": [Owner],
        "writes": [Repo],
        "scans": [IdempotencyRow],
        "publishes": [RepoCreated],
        "splits_into": [Torn],
        "uses": [Printer],
        "needs": [Need(("dynamodb:BatchGetItem",), Owner)],
    }

    @consumer(on=RepoCreated, **touched)
    def touching(event: RepoCreated, work: object) -> None: ...

    assert touching.access == Access.of(**touched)


def test_a_consumer_may_wait_for_several_events__or_for_one_kind_of_part() -> None:
    class Torn(Part, type="test.torn"): ...

    @consumer(on=[RepoCreated, RepoRenamed])
    def several(event: RepoCreated | RepoRenamed, work: object) -> None: ...

    @consumer(on=Torn)
    def parts(event: Torn, work: object) -> None: ...

    assert (several.on, several.part) == ((RepoCreated, RepoRenamed), None)
    assert (parts.on, parts.part) == ((Torn,), Torn)


def test_a_consumer_of_parts_waits_for_nothing_else() -> None:
    class Torn(Part, type="test.torn"): ...

    with pytest.raises(DeclarationError, match="one kind of them"):

        @consumer(on=[Torn, RepoCreated])
        def torn(event: Torn | RepoCreated, work: object) -> None: ...


@pytest.mark.parametrize("schedule", ["0 */5 * * * *", "rate(5 minutes)", 300, None], ids=repr)
def test_a_job_without_a_schedule_that_is_one_fails_where_it_is_declared(schedule: Any) -> None:
    with pytest.raises(ScheduleError, match=r"hasty: .*write"):

        @job(schedule=schedule)
        def hasty(work: object) -> None: ...


def test_an_event_class_without_a_type_is_nothing_to_wait_for() -> None:
    class Untold(Event): ...

    with pytest.raises(DeclarationError, match="Untold"):

        @consumer(on=Untold)
        def waiting(event: Untold, work: object) -> None: ...
