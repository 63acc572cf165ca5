"""Queries: the parameters of a path, validated before any code of a use case runs.

A parameter that is sent twice arrives with a comma between its values, and what takes a number or a name refuses it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar

from aws_lambda_powertools.utilities.data_classes import APIGatewayProxyEventV2
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mailroom.http.kinds import INVALID_QUERY
from mailroom.http.problem import invalid

MAX_LIMIT = 100

_WHOLE = re.compile(r"0|[1-9][0-9]{0,8}")


class Query(BaseModel):
    """The query parameters of a route; this one has none.

    Examples
    --------
    ```python
    class ListRepos(Query):
        owner_id: str
        limit: Limit = 20
        cursor: str | None = None
    ```
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


Q = TypeVar("Q", bound=Query)


def _whole(value: Any) -> Any:
    """Take plain digits for a number: pydantic alone takes ` 5 `, `5.0` and `1_000` too."""
    if isinstance(value, str) and not _WHOLE.fullmatch(value):
        raise ValueError("a whole number is wanted")
    return value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A number in plain digits."""
Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT), BeforeValidator(_whole)]
"""How many items one page has at most. (Written as `Annotated[Whole, Field(…)]` its bounds would hold, but pydantic
would not tell JSON Schema of them.)"""


def read_query(event: APIGatewayProxyEventV2, model: type[Q]) -> Q:
    """Read and validate the query parameters of a request.

    Raises
    ------
    Problem
        If there are others, or they are not what the model takes.
    """
    try:
        return model.model_validate(event.query_string_parameters)
    except ValidationError as error:
        raise invalid(INVALID_QUERY, error, whole="query") from error
