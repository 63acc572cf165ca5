"""The documents keep to the code: the tests that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = (ROOT / "docs/guarantees.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUARANTEES)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_guarantee_names_a_test_that_exists(file: str, test: str) -> None:
    assert f"\ndef {test}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("section", re.split(r"\n(?=## G\d+\.)", GUARANTEES)[1:], ids=lambda text: text.split(".")[0])
def test_each_guarantee_has_a_test(section: str) -> None:
    assert re.search(r"`tests/[\w/]+\.py::\w+`", section)


@pytest.mark.parametrize("document", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda p: p.name)
def test_a_link_between_documents_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target
