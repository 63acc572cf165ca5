"""The base of commands: what a body must be, declared once, before any code of a use case runs."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Command(BaseModel):
    """The input of a use case: no field too many, no value of another type taken for the right one.

    Examples
    --------
    ```python
    class CreateRepo(Command):
        name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
        owner_id: str
    ```
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)
