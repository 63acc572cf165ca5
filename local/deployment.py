"""Deploys the application into the emulator with the real CDK command."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from local import emulator, workspace
from local.account import ACCOUNT, REGION, session
from local.aftercare import complete
from local.cdk import cdk, progress
from local.emulator import Emulator
from local.stack import LocalStack
from local.steps import Steps
from local.workspace import Workspace
from mailroom.deployment import Deployment, service_stack

STAGE = "local"

_ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
"""The bucket that `cdk bootstrap` makes; the middle is CDK's default qualifier."""


def start_and_deploy(place: Workspace, steps: Steps) -> LocalStack:
    """Deploy all stacks to the emulator of `place`, which is started if none runs, and write the stack's description.

    Raises
    ------
    CdkFailed
        If a run of the CDK command fails.
    EmulatorFailed
        If the emulator does not start.
    """
    with _synthesized(place, steps):  # side by side: the templates need no emulator
        running = emulator.find(place)
        if running is None:
            with steps.step("local AWS"):
                running = emulator.start(place)
        if not _is_bootstrapped(running):
            _bootstrap(place, running, steps)
    _deploy(place, running, steps)
    with steps.step("what the local CloudFormation leaves out"):
        stack = LocalStack.deployed_at(running.url, _deployment(place))
        complete(stack, place.assembly)
        stack.write(place.description)
    return stack


@contextmanager
def _synthesized(place: Workspace, steps: Steps) -> Iterator[None]:
    """Write the templates and assets below `place.assembly` while the block runs; they are there when it ended."""
    place.folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place.assembly, ignore_errors=True)
    options = ["--quiet", "--context", f"stage={STAGE}", "--output", str(place.assembly)]
    with (
        cdk(place, "synth", options, cwd=workspace.ROOT) as synth,
        steps.step("templates (cdk synth)", partial(progress, synth.log)),
    ):
        yield
        synth.finish()


def _bootstrap(place: Workspace, running: Emulator, steps: Steps) -> None:
    options = [f"aws://{ACCOUNT}/{REGION}"]
    # Away from cdk.json, or it would synthesize the whole application first.
    with (
        cdk(place, "bootstrap", options, cwd=place.folder, endpoint_url=running.url) as bootstrap,
        steps.step("account (cdk bootstrap)", partial(progress, bootstrap.log)),
    ):
        bootstrap.finish()
    # It refuses whatever comes without TLS, and with that every upload to the emulator.
    _client(running, "s3").delete_bucket_policy(Bucket=_ASSETS)


def _deploy(place: Workspace, running: Emulator, steps: Steps) -> None:
    options = ["--all", "--require-approval", "never", "--app", str(place.assembly)]
    files = ["--outputs-file", str(place.outputs)]
    with (
        cdk(place, "deploy", [*options, *files], cwd=place.folder, endpoint_url=running.url) as deployment,
        steps.step("stacks (cdk deploy)", partial(progress, deployment.log)),
    ):
        deployment.finish()


def _client(running: Emulator, service: str) -> Any:
    return session().client(service, endpoint_url=running.url)  # type: ignore[call-overload]


def _is_bootstrapped(running: Emulator) -> bool:
    stacks = _client(running, "cloudformation").describe_stacks()["Stacks"]
    return any(stack["StackName"] == "CDKToolkit" for stack in stacks)


def _deployment(place: Workspace) -> Deployment:
    outputs = json.loads(place.outputs.read_text())
    return Deployment.from_outputs(STAGE, outputs[service_stack(STAGE)])
