"""The command `make mutants`: run the parts, print a table and each survivor that has no reason yet."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from local.mutants.plan import Plan, line_of, load
from local.mutants.run import Result, read, run

_ROW = "{:<14} {:>8} {:>8} {:>10} {:>9} {:>7}"


def main() -> int:
    """Run the parts that are asked for; return 1 if a survivor has no reason or a mutant no verdict."""
    plan = load()
    names = [part.name for part in plan.parts]
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which parts to run, all if none is named: {', '.join(names)}")
    parser.add_argument(
        "--again", action="store_true", help="run only what was not killed the last time, after a change of tests alone"
    )
    parser.add_argument("--read", action="store_true", help="run nothing and show what came of the last time")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(names):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    results = []
    for part in plan.parts:
        if not asked.parts or part.name in asked.parts:
            began = time.monotonic()
            results.append(read(part) if asked.read else run(part, plan.skip, again=asked.again))
            print(f"{part.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    _show(results)
    return _judge(results, plan)


def _show(results: Sequence[Result]) -> None:
    print(_ROW.format("part", "mutants", "killed", "timed out", "survived", "share"))
    whole = Result(
        "together",
        sum(result.killed for result in results),
        sum(result.timed_out for result in results),
        tuple(mutant for result in results for mutant in result.survived),
        (),
    )
    for each in (*results, whole):
        share = f"{100 * (1 - len(each.survived) / each.mutants):.1f} %" if each.mutants else "-"
        print(_ROW.format(each.part, each.mutants, each.killed, each.timed_out, len(each.survived), share))


def _judge(results: Sequence[Result], plan: Plan) -> int:
    known = plan.survivors
    ran = {file for part in plan.parts for file in part.code if part.name in {result.part for result in results}}
    survived = {mutant for result in results for mutant in result.survived}
    new = sorted(survived - known.keys())
    print(f"\n{len(survived) - len(new)} of the survivors have their reason in tests/mutants.toml.")
    for mutant in new:
        print(f"\nsurvived: {mutant.file}:{line_of(mutant)} {mutant.function}\n  {mutant.change}")
    for mutant in sorted(known.keys() - survived):
        if mutant.file in ran:
            print(f"\nkilled by now, no survivor any more: {mutant.file} {mutant.function}\n  {mutant.change}")
    broken = [each for result in results for each in result.broken]
    for each in broken:
        print(f"no verdict: {each}")
    return 1 if new or broken else 0


if __name__ == "__main__":
    sys.exit(main())
