"""The documents keep to the code: the tests that they name are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mailroom.consumer import Consumer
from mailroom.declarations import discover
from mailroom.job import Job

ROOT = Path(__file__).parents[2]
GUARANTEES = (ROOT / "docs/guarantees.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", GUARANTEES)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_guarantee_names_a_test_that_exists(file: str, test: str) -> None:
    assert f"\ndef {test}(" in (ROOT / file).read_text()


@pytest.mark.parametrize("section", re.split(r"\n(?=## G\d+\.)", GUARANTEES)[1:], ids=lambda text: text.split(".")[0])
def test_each_guarantee_has_a_test(section: str) -> None:
    assert re.search(r"`tests/[\w/]+\.py::\w+`", section)


def test_the_readmes_consumer_and_job_are_files_as_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, consumer, job = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    package = tmp_path / "from_the_readme"
    package.mkdir()
    for name, source in (("__init__", ""), ("audit", consumer), ("report_repos", job)):
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [each.name for each in discover("from_the_readme", Consumer)] == ["audit"]
    assert [each.name for each in discover("from_the_readme", Job)] == ["report_repos"]


@pytest.mark.parametrize("document", [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"], ids=lambda p: p.name)
def test_a_link_between_documents_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target
