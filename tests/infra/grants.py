"""What functions may do, as lines that people review: `grants.txt` has those that were accepted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.infra.assembly import Assembly, id_in, listed

REVIEWED = Path(__file__).with_name("grants.txt")
HEADER = """\
# What each function of the stage prod may do: function, resource, action.
#
# A test holds the template against these lines, and `make grants` writes them anew: review what changes as you do code.
# An ARN without region and account is in the stage's own. What has no name but CloudFormation's is given by its id.
"""

_REFERENCE = re.compile(r"\$\{(?P<id>\w+)(\.(?P<attribute>\w+))?\}")
_HASH = re.compile(r"[0-9A-F]{8}$")


def lines_of(assembly: Assembly, *, account: str, region: str) -> list[str]:
    """Return a line for each action that a function may take on a resource.

    Parameters
    ----------
    account, region
        Where the stage is deployed: left out of the ARNs of what is there.
    """
    here = re.compile(rf"^arn:\$\{{AWS::Partition\}}:(\w+):(?:{region}:{account}|:):")
    names = _names(assembly)

    def readable(resource: str) -> str:
        return _REFERENCE.sub(lambda found: _name(found, names), here.sub(r"\1:", resource))

    return sorted(
        {
            f"{function}  {readable(resource)}  {action}{_conditions(statement)}"
            for function in assembly.deployment["functions"]
            for statement in assembly.statements(assembly.function(function))
            for resource in listed(statement["Resource"])
            for action in listed(statement["Action"])
        }
    )


def reviewed() -> list[str]:
    """Return the lines that were accepted."""
    return [line for line in REVIEWED.read_text().splitlines() if line and not line.startswith("#")]


def accept(lines: Iterable[str]) -> None:
    """Write the lines to the file, a paragraph for each function."""
    paragraphs = ("\n".join(group) for _, group in groupby(lines, key=lambda line: line.split()[0]))
    REVIEWED.write_text("\n".join([HEADER, *(f"{each}\n" for each in paragraphs)]))


def difference(lines: Iterable[str]) -> list[str]:
    """Return what was granted since the review, with a plus, and what is granted no more, with a minus."""
    before, now = set(reviewed()), set(lines)
    changed = [(line, "-") for line in before - now] + [(line, "+") for line in now - before]
    return [f"{sign} {line}" for line, sign in sorted(changed)]


def _conditions(statement: dict[str, Any]) -> str:
    """Return what must hold besides, as the end of a line."""
    asked = [
        f"  if {key} {operator} {value}"
        for operator, values in statement.get("Condition", {}).items()
        for key, value in values.items()
    ]
    return "".join(sorted(asked))


def _names(assembly: Assembly) -> dict[str, str]:
    """Return what the deployment calls its parts, by logical id."""
    kinds = {"table": "tables", "queue": "queues", "function": "functions", "bus": "buses"}
    names = {
        id_in(reference): f"{kind}/{name}"
        for kind, group in kinds.items()
        for name, reference in assembly.deployment[group].items()
    }
    for name in assembly.deployment["functions"]:
        function = assembly.properties(assembly.function(name))
        names[id_in(function["LoggingConfig"]["LogGroup"])] = f"log-group/{name}"
    return names


def _name(found: re.Match[str], names: dict[str, str]) -> str:
    name = names.get(found["id"]) or _HASH.sub("", found["id"])
    return f"{name}/stream" if found["attribute"] == "StreamArn" else name
