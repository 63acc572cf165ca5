"""The HTTP face of a service."""

from __future__ import annotations

from mailroom.needs import Access


class Api:  # follows
    def __init__(self, *, access: Access) -> None:
        self.access = access
