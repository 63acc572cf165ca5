"""Settings: what a function reads is what infra wrote, and whatever is missing is named."""

from __future__ import annotations

import pytest

from app.settings import AppSettings
from mailroom.publishers.place import PublisherUrlError
from mailroom.publishers.publisher import kind_of
from mailroom.settings import Environment, Settings, SettingsError
from mailroom.timings import timings_of
from tests import stage

SETTINGS = stage.settings(stage="local")
APP_SETTINGS = stage.app_settings()


@pytest.mark.parametrize("settings", [SETTINGS, APP_SETTINGS], ids=lambda settings: type(settings).__name__)
def test_settings_come_back_from_the_environment__as_they_were_put_there(settings: Environment) -> None:
    assert type(settings).from_env(settings.to_env()) == settings


def test_each_setting_is_a_variable__with_its_owners_prefix() -> None:
    assert SETTINGS.to_env()["MAILROOM_OUTBOX_TABLE"] == "outbox-table"
    assert APP_SETTINGS.to_env()["APP_REPOS_TABLE"] == "repos-table"


def test_two_kinds_share_an_environment__without_meeting() -> None:
    environment = SETTINGS.to_env() | APP_SETTINGS.to_env() | {"PATH": "/bin"}

    assert (Settings.from_env(environment), AppSettings.from_env(environment)) == (SETTINGS, APP_SETTINGS)


@pytest.mark.parametrize("kind", [Settings, AppSettings])
def test_every_missing_variable_is_named__at_once(kind: type[Environment]) -> None:
    with pytest.raises(SettingsError) as caught:
        kind.from_env({})

    assert all(kind.variable(field) in str(caught.value) for field in kind.model_fields)


def test_a_variable_that_is_there_is_not_blamed__for_one_that_is_missing() -> None:
    environment = SETTINGS.to_env()
    del environment["MAILROOM_STAGE"]

    with pytest.raises(SettingsError, match=r"^the environment does not fit Settings: MAILROOM_STAGE: Field required$"):
        Settings.from_env(environment)


@pytest.mark.parametrize("variable", sorted(SETTINGS.to_env()))
def test_a_blank_variable_is_as_good_as_missing(variable: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        Settings.from_env(SETTINGS.to_env() | {variable: ""})


def test_a_wrong_value_is_named__by_its_variable() -> None:
    with pytest.raises(SettingsError, match="MAILROOM_AUTH: Input should be"):
        Settings.from_env(SETTINGS.to_env() | {"MAILROOM_AUTH": "maybe"})


@pytest.mark.parametrize("networks", ["127.0.0.1/8", "localhost", "none,127.0.0.0/8"])
def test_networks_that_are_none_are_refused__before_anything_is_sent(networks: str) -> None:
    with pytest.raises(SettingsError, match="MAILROOM_OUTBOUND_NETWORKS"):
        Settings.from_env(SETTINGS.to_env() | {"MAILROOM_OUTBOUND_NETWORKS": networks})


def test_the_process_environment_is_read__when_no_other_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in SETTINGS.to_env().items():
        monkeypatch.setenv(variable, value)

    assert Settings.from_env() == SETTINGS


def test_settings_cannot_be_changed__once_made() -> None:
    with pytest.raises(ValueError, match="frozen"):
        SETTINGS.stage = "prod"  # type: ignore[misc]


def test_tables_are_known_by_their_short_names() -> None:
    assert SETTINGS.table_names() == {
        "outbox": "outbox-table",
        "idempotency": "idempotency-table",
        "leases": "leases-table",
        "rates": "rates-table",
        "breakers": "breakers-table",
        "sagas": "sagas-table",
    }


def test_a_stages_timings_come_with_its_settings() -> None:
    assert SETTINGS.timings == timings_of("local")


@pytest.mark.parametrize("url", ["", "bus", "eventbridge", "eventbridge://", "smoke://signals", "://bus"])
def test_a_publisher_url_that_names_no_destination_is_refused__with_those_that_do(url: str) -> None:
    with pytest.raises(PublisherUrlError, match=r"known are .*eventbridge://"):
        kind_of(url)


def test_a_publisher_url_keeps_its_place_as_it_is__also_one_that_is_known_at_deployment_only() -> None:
    assert kind_of("eventbridge://${Token[BUS.1]}")[1].name == "${Token[BUS.1]}"
