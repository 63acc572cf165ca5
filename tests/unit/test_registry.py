"""The registry: what an application declares, found by its package's name."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.events import RepoCreated
from app.settings import AppSettings
from mailroom.consumer import consumer
from mailroom.declarations import DeclarationError
from mailroom.outbox.event import Part
from mailroom.registry import Registry
from mailroom.unit_of_work import UnitOfWork


def test_the_applications_declarations_stand_beside_the_machinerys() -> None:
    registry = Registry.of("app")
    assert "notifications" in [each.name for each in registry.consumers]
    assert {"cleanup", "metrics_export", "outbox_relay"} <= {each.name for each in registry.jobs}


def test_its_settings_are_those_that_it_defines_itself() -> None:
    assert Registry.of("app").settings == (AppSettings,)


def test_an_application_that_is_not_there_is_named() -> None:
    with pytest.raises(DeclarationError, match="no application 'missing' here"):
        Registry.of("missing")


def test_an_error_within_an_application_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "faulty_app"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "settings.py").write_text("import not_installed_here")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        Registry.of("faulty_app")


def test_a_declaration_is_found_by_its_name() -> None:
    registry = Registry.of("app")
    assert registry.consumer("notifications").name == "notifications"
    assert registry.job("cleanup").name == "cleanup"


class Crumb(Part, type="test.crumb"):
    """Part of a loaf."""


@consumer(on=RepoCreated, splits_into=[Crumb])
def slicer(event: RepoCreated, work: UnitOfWork) -> None: ...


@consumer(on=Crumb)
def eater(event: Crumb, work: UnitOfWork) -> None: ...


def test_who_waits_for_the_parts_of_an_event_is_known() -> None:
    registry = Registry(consumers=(slicer, eater), jobs=(), settings=())
    assert registry.receiver_of(slicer) is eater
    assert registry.receiver_of(eater) is None


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(DeclarationError, match=r"no job 'cleanups'; there is .*cleanup.*outbox_relay"):
        Registry.of("app").job("cleanups")
