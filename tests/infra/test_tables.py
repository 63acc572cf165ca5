"""Tables are what the models say, and as safe as their stage asks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template
from pynamodb.attributes import NumberAttribute, TTLAttribute, UnicodeAttribute
from pynamodb.indexes import GlobalSecondaryIndex, IncludeProjection

from infra.application import Application
from infra.stage import StageConfig
from infra.tables import Tables
from mailroom.row import Row
from tests.infra.assembly import Assembly
from tests.infra.conftest import Synth

OURS = ("mailroom.", "app.")


def models() -> dict[str, type[Row]]:
    Application.discover()
    return {name: model for name, model in Row.tables.items() if model.__module__.startswith(OURS)}


def test_every_model_has_a_table_and_every_table_a_model(prod: Assembly) -> None:
    assert set(prod.deployment["tables"]) == set(models())
    assert len(prod.of_type("DynamoDB::Table")) == len(models())


def test_a_tables_keys_are_its_models__with_their_types(prod: Assembly) -> None:
    for short_name, model in models().items():
        schema = model._get_schema()
        table = prod.properties(prod.table(short_name))
        assert {(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]} == {
            (key["AttributeName"], key["KeyType"]) for key in schema["key_schema"]
        }
        assert {(each["AttributeName"], each["AttributeType"]) for each in table["AttributeDefinitions"]} == {
            (each["AttributeName"], each["AttributeType"]) for each in schema["attribute_definitions"]
        }


def test_a_tables_indexes_are_its_models(prod: Assembly) -> None:
    for short_name, model in models().items():
        built = prod.properties(prod.table(short_name)).get("GlobalSecondaryIndexes", [])
        declared = model._get_schema()["global_secondary_indexes"]
        assert {each["IndexName"] for each in built} == {each["index_name"] for each in declared}


@pytest.mark.usefixtures("forget_models")
def test_an_index_has_the_keys_and_the_projection_that_its_model_declares(
    app: App, stage: Callable[[str], StageConfig]
) -> None:
    class ByOwner(GlobalSecondaryIndex["Draft"]):
        class Meta:
            index_name = "by_owner"
            projection = IncludeProjection(["title"])

        owner_id = UnicodeAttribute(hash_key=True)
        number = NumberAttribute(range_key=True)

    class Draft(Row):
        class Meta:
            short_name = "drafts"

        id = UnicodeAttribute(hash_key=True)
        by_owner = ByOwner()

    stack = Stack(app, "stack")
    tables = Tables(stack, "Tables", stage=stage("dev"), models=[Draft])
    (table,) = Template.from_stack(stack).find_resources("AWS::DynamoDB::Table").values()
    (index,) = table["Properties"]["GlobalSecondaryIndexes"]
    assert index["KeySchema"] == [
        {"AttributeName": "owner_id", "KeyType": "HASH"},
        {"AttributeName": "number", "KeyType": "RANGE"},
    ]
    assert index["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]}
    assert [tables.arn(place).split("/")[1:] for place in (Draft, Draft.by_owner)] == [[], ["index", "by_owner"]]


def test_rows_expire_by_the_models_attribute(prod: Assembly) -> None:
    for short_name, model in models().items():
        expiry = [each.attr_name for each in model.get_attributes().values() if isinstance(each, TTLAttribute)]
        built = prod.properties(prod.table(short_name)).get("TimeToLiveSpecification", {})
        assert built.get("AttributeName") == next(iter(expiry), None)


def test_only_the_outbox_has_a_stream__of_keys_alone(prod: Assembly) -> None:
    streams = {name: prod.properties(prod.table(name)).get("StreamSpecification") for name in prod.deployment["tables"]}
    assert streams.pop("outbox") == {"StreamViewType": "KEYS_ONLY"}
    assert set(streams.values()) == {None}


@pytest.mark.parametrize(("name", "kept"), [("local", False), ("dev", False), ("prod", True)])
def test_data_outlives_its_stack__in_production_alone(synth: Synth, name: str, kept: bool) -> None:
    assembly = synth(name)
    holders = assembly.of_type("DynamoDB::Table") | assembly.of_type("SQS::Queue")
    assert {each["DeletionPolicy"] for each in holders.values()} == {"Retain" if kept else "Delete"}
    assert {each["UpdateReplacePolicy"] for each in holders.values()} == {"Retain" if kept else "Delete"}


@pytest.mark.parametrize(("name", "kept"), [("local", False), ("dev", False), ("prod", True)])
def test_tables_can_be_restored_and_not_deleted__in_production_alone(synth: Synth, name: str, kept: bool) -> None:
    for table in synth(name).of_type("DynamoDB::Table").values():
        recovery = table["Properties"]["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"]
        assert (recovery, table["Properties"]["DeletionProtectionEnabled"]) == (kept, kept)
