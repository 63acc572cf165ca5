"""Rights are held against what is granted in every test of the modules and folders that import this fixture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rights import Rights


@pytest.fixture(autouse=True)
def rights(aws: None) -> Iterator[Rights]:
    """What the functions would be denied on AWS."""
    with Rights().attached() as rights:
        yield rights
    rights.check()
