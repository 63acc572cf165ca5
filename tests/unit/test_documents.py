"""The documents keep to the code: the tests that they name are there."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from mailroom.consumer import Consumer
from mailroom.declarations import discover
from mailroom.job import Job, lease_name
from mailroom.schedule import Every
from mailroom.timings import Timings

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


PAGES = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md"]


@pytest.mark.parametrize("document", PAGES, ids=lambda page: page.name)
def test_a_link_between_documents_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        assert (document.parent / target).exists(), target


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_anchor_in_a_link_is_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", page.read_text()):
        other = (page.parent / target).resolve() if target else page
        assert other.suffix != ".md" or anchor in anchors_of(other), f"{target}#{anchor}"


@pytest.mark.parametrize("name", ["class", "def"])
def test_the_anchors_are_those_of_github(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# What `{name}` is: a_b, c-d & “e”\n")
    assert anchors_of(page) == {f"what-{name}-is-a_b-c-d--e"}


def test_every_question_has_an_answer_with_a_link() -> None:
    text = (ROOT / "docs/questions.md").read_text()
    asked = re.findall(r"^\*\*([^*]+\?)\*\* (.+?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(asked) == text.count("\n**")
    for question, answer in asked:
        assert re.search(r"\]\(", answer), question
        said = re.sub(r"\[[^]]*\]\([^)]*\),?|\([^)]*\)", "", answer)
        assert 1 <= len(re.findall(r"[.?!](?:\s|$)", said)) <= 4, question


def test_the_table_of_built_in_jobs_is_theirs() -> None:
    text = (ROOT / "docs/jobs.md").read_text()
    (section,) = re.findall(r"^## The built-in jobs\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    shown, told = (set(re.findall(rf"^\| `(\w+)` \| {cell}", section, re.MULTILINE)) for cell in ("`", r"[^`]"))
    jobs = {each.name: each for each in discover("mailroom.jobs", Job)}
    assert shown == told == set(jobs)
    for name, each in jobs.items():
        schedule = each.schedule
        assert isinstance(schedule, Every)
        declared = ", ".join(f"{unit}={n}" for unit, n in asdict(schedule).items() if n)
        timeout = each.timeout or Timings().job_timeout
        assert (
            f"| `{name}` | `Every({declared})` | `{schedule.to_eventbridge()}` | {timeout} s | {each.memory} MiB"
            f" | `{lease_name(name)}` |\n"
        ) in section
