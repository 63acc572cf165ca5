"""DynamoDB tables, derived from the models that the functions use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct
from pynamodb.attributes import Attribute, TTLAttribute
from pynamodb.indexes import GlobalSecondaryIndex, Index

from infra.rules import do_otherwise
from infra.stage import StageConfig
from mailroom.declarations import DeclarationError
from mailroom.outbox.table import OutboxRow
from mailroom.row import Row
from mailroom.settings import Environment

_TYPES = {
    "S": dynamodb.AttributeType.STRING,
    "N": dynamodb.AttributeType.NUMBER,
    "B": dynamodb.AttributeType.BINARY,
}
_NO_RESTORE = "outside production tables hold nothing that anybody would want back"


class Tables(Construct):
    """One table per model, on demand, encrypted by DynamoDB's own key."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig, models: Iterable[type[Row]]) -> None:
        super().__init__(scope, id_)
        self._tables = {model: self._build(model, stage) for model in models}

    def of(self, model: type[Row]) -> dynamodb.Table:
        """Answer the table of a model.

        Raises
        ------
        DeclarationError
            If no settings name its table.
        """
        if model not in self._tables:
            field = f"{model.Meta.short_name}_table"
            raise DeclarationError(f"{model.__name__} has no table: add the field {field!r} to AppSettings")
        return self._tables[model]

    def arn(self, place: type[Row] | Index[Any]) -> str:
        """Return what a grant on a model's table names, or on one of its indexes."""
        if isinstance(place, Index):
            return f"{self.of(place._model).table_arn}/index/{place.Meta.index_name}"
        return self.of(place).table_arn

    def names(self) -> dict[str, str]:
        """Answer the deployed names by the short ones."""
        return {model.Meta.short_name: table.table_name for model, table in self._tables.items()}

    def fields_of(self, kind: type[Environment]) -> dict[str, str]:
        """Answer the values of the fields of these settings that name tables."""
        names = self.names()
        return {field: names[short] for short, field in kind.table_fields().items()}

    def _build(self, model: type[Row], stage: StageConfig) -> dynamodb.Table:
        attributes = model.get_attributes().values()
        table = dynamodb.Table(
            self,
            model.Meta.short_name,
            partition_key=_partition_key(attributes),
            sort_key=_sort_key(attributes),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            time_to_live_attribute=_expiry(attributes),
            stream=dynamodb.StreamViewType.KEYS_ONLY if model is OutboxRow else None,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=stage.keeps_data
            ),
            deletion_protection=stage.keeps_data,
            removal_policy=stage.removal_policy,
        )
        for index in model._indexes.values():
            _add_index(table, index)
        if not stage.keeps_data:
            do_otherwise(table, "DDB3", because=_NO_RESTORE)
        return table


def _partition_key(attributes: Iterable[Attribute[Any]]) -> dynamodb.Attribute:
    return next(_key(each) for each in attributes if each.is_hash_key)


def _sort_key(attributes: Iterable[Attribute[Any]]) -> dynamodb.Attribute | None:
    return next((_key(each) for each in attributes if each.is_range_key), None)


def _key(attribute: Attribute[Any]) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=attribute.attr_name, type=_TYPES[attribute.attr_type])


def _expiry(attributes: Iterable[Attribute[Any]]) -> str | None:
    return next((each.attr_name for each in attributes if isinstance(each, TTLAttribute)), None)


def _add_index(table: dynamodb.Table, index: Index[Any]) -> None:
    if not isinstance(index, GlobalSecondaryIndex):
        raise DeclarationError(f"{index.Meta.index_name}: only global secondary indexes are deployed")
    projection = index.Meta.projection
    table.add_global_secondary_index(
        index_name=index.Meta.index_name,
        partition_key=_partition_key(index.Meta.attributes.values()),
        sort_key=_sort_key(index.Meta.attributes.values()),
        projection_type=dynamodb.ProjectionType(projection.projection_type),
        non_key_attributes=projection.non_key_attributes,
    )
