"""What happens at the moment of another request's call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mailroom.clients import Call


class Meanwhile:
    """Does something at the moment of a call, once."""

    def __init__(self, operation: str, act: Callable[[], Any]) -> None:
        self._operation, self._act, self.answer = operation, act, None

    def before(self, call: Call) -> None:
        if call.operation == self._operation and self._act is not None:
            act, self._act = self._act, None
            self.answer = act()

    def after(self, call: Call, answer: dict[str, Any]) -> None: ...
