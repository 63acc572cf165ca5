"""The command line of the local stack: `python -P -m local up | down | run | e2e`."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from local import emulator, guide
from local.account import HOST
from local.cdk import CdkFailed
from local.deployment import start_and_deploy
from local.emulator import EmulatorFailed
from local.logs import keep_function_logs, trouble
from local.stack import LocalStack
from local.steps import Steps
from local.tour import Hop, TourFailed, in_order, walk
from local.waiting import NeverHappened
from local.workspace import E2E, LOCAL, ROOT, Workspace

# Soft wrapping leaves long lines whole: they are there to be pasted.
console = Console(highlight=False, soft_wrap=True, markup=False)


def up() -> int:
    """Start the local stack in the background, or deploy again to the one that runs."""
    already = emulator.find(LOCAL) is not None
    try:
        stack = _deployed(LOCAL)
    except BaseException:
        if not already:
            _stop(LOCAL)
        raise
    _show_guide(stack)
    console.print("\nIt runs in the background until `make down`.", style="bold")
    return 0


def down() -> int:
    """Stop the local stack."""
    if not _stop(LOCAL):
        console.print("No local stack runs.")
    return 0


def run() -> int:
    """Start everything, follow one request, and stay until Ctrl-C."""
    if emulator.find(LOCAL):
        console.print("A local stack runs already: using it, and leaving it there afterwards.")
        _tour(_deployed(LOCAL))
        return 0
    with _started_and_stopped(LOCAL):
        _tour(_deployed(LOCAL))
        console.print("\nIt runs until you press Ctrl-C.", style="bold")
        return _stay(LOCAL)


def e2e(arguments: list[str]) -> int:
    """Run pytest against a stack of its own, and stop it whatever happens."""
    with _started_and_stopped(E2E):
        _deployed(E2E)
        status = subprocess.run(
            [Path(sys.executable).with_name("pytest"), *arguments],
            cwd=ROOT,
            env={**os.environ, "MAILROOM_LOCAL_JSON": str(E2E.description)},
            stdin=subprocess.DEVNULL,
            check=False,
        ).returncode
        if status != 0:
            _keep_function_logs(E2E)
            console.print(f"The functions' logs are in {E2E.function_log}.", style="yellow")
        return status


def main() -> int:
    """Run one command; its status is the process's."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit_for)
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = HOST
    name, arguments = _parse()
    commands: dict[str, Callable[[], int]] = {
        "up": up,
        "down": down,
        "run": run,
        "e2e": lambda: e2e(arguments),
    }
    place = E2E if name == "e2e" else LOCAL
    try:
        return commands[name]()
    except KeyboardInterrupt:
        return 130
    except (CdkFailed, EmulatorFailed, NeverHappened, TourFailed) as error:
        console.print(f"\n{error}", style="red")
        for log in (place.emulator_log, place.function_log):
            if log.exists():
                console.print(f"\nFrom {log}:\n{trouble(log)}", style="yellow")
        return 1


def _parse() -> tuple[str, list[str]]:
    parser = argparse.ArgumentParser(prog="local", description="The local stack; make calls this.")
    parser.add_argument("command", choices=["up", "down", "run", "e2e"])
    parser.add_argument("arguments", nargs="*", help="for e2e, after --: pytest's")
    parsed = parser.parse_args()
    return parsed.command, parsed.arguments


def _exit_for(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


@contextmanager
def _started_and_stopped(place: Workspace) -> Iterator[None]:
    place.function_log.unlink(missing_ok=True)
    try:
        yield
    except (NeverHappened, TourFailed):
        _keep_function_logs(place)
        raise
    finally:
        _stop(place)


def _keep_function_logs(place: Workspace) -> None:
    if running := emulator.find(place):
        keep_function_logs(running.url, place.function_log)


def _deployed(place: Workspace) -> LocalStack:
    with Steps(console) as steps:
        return start_and_deploy(place, steps)


def _stop(place: Workspace) -> bool:
    stopped = emulator.stop(place)
    if stopped:
        place.description.unlink(missing_ok=True)
        console.print("The local stack is stopped; nothing of it runs any more.")
    return stopped


def _stay(place: Workspace) -> int:
    """Wait for Ctrl-C, which is the good end; the emulator ending by itself is not."""
    try:
        while emulator.find(place):
            time.sleep(1)
    except KeyboardInterrupt:
        console.print()
        return 0
    console.print(f"The local AWS ended by itself:\n{trouble(place.emulator_log)}", style="red")
    return 1


def _tour(stack: LocalStack) -> None:
    console.print("\nPOST /api/v1/repos, milliseconds since it was sent, while the functions start:", style="bold")
    reached = ["nothing yet"]

    def show(hop: Hop) -> None:
        reached.append(hop.name)
        _show(hop)

    with Steps(console) as steps, steps.step("first request", lambda: f"reached: {reached[-1]}"):
        repo_id = walk(stack, show)
    console.print("\nAnother one, now that they are warm:", style="bold")
    hops: list[Hop] = []
    walk(stack, hops.append)
    for hop in in_order(hops):
        _show(hop)
    _show_guide(stack, repo_id)


def _show(hop: Hop) -> None:
    console.print(f"{hop.milliseconds:>7} ms  {hop.name:<16} {hop.detail}")


def _show_guide(stack: LocalStack, repo_id: str | None = None) -> None:
    console.print("\nAddresses", style="bold")
    for name, address in guide.addresses(stack).items():
        console.print(f"  {name:<17} {address}")
    console.print("\nTry", style="bold")
    for purpose, line in guide.commands(stack, repo_id).items():
        console.print(f"  # {purpose}", style="dim")
        console.print(f"  {line}")
    console.print("\nNext", style="bold")
    for line in guide.next_steps():
        console.print(f"  {line}")


if __name__ == "__main__":
    sys.exit(main())
