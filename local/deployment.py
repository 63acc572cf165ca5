"""Deploys the application into the emulator with the real `cdk deploy`."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from local import workspace
from local.account import ACCOUNT, CREDENTIALS, REGION, session
from local.aftercare import complete
from local.emulator import Emulator
from local.logs import tail
from local.process import run_to_the_end
from local.stack import LocalStack
from local.workspace import Workspace
from mailroom.deployment import Deployment, service_stack

STAGE = "local"

_ASSETS = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
"""The bucket that `cdk bootstrap` makes; the middle is CDK's default qualifier."""


class DeploymentFailed(Exception):
    """The CDK command failed; the message ends with what it wrote."""


def deploy(place: Workspace, emulator: Emulator) -> LocalStack:
    """Deploy all stacks, complete what CloudFormation there leaves out, and write the stack's description.

    Raises DeploymentFailed.
    """
    shutil.rmtree(place.assembly, ignore_errors=True)
    if not _is_bootstrapped(emulator):
        _bootstrap(place, emulator)
    _cdk_deploy(place, emulator)
    stack = LocalStack.deployed_at(emulator.url, _deployment(place))
    complete(stack, place.assembly)
    stack.write(place.description)
    return stack


def _bootstrap(place: Workspace, emulator: Emulator) -> None:
    # Away from cdk.json, or it would synthesize the whole application first.
    _cdk(place, emulator, ["bootstrap", f"aws://{ACCOUNT}/{REGION}"], cwd=place.folder)
    # It refuses whatever comes without TLS, and with that every upload to the emulator.
    _client(emulator, "s3").delete_bucket_policy(Bucket=_ASSETS)


def _cdk_deploy(place: Workspace, emulator: Emulator) -> None:
    options = ["--all", "--require-approval", "never", "--context", f"stage={STAGE}"]
    files = ["--output", str(place.assembly), "--outputs-file", str(place.outputs)]
    _cdk(place, emulator, ["deploy", *options, *files], cwd=workspace.ROOT)


def _cdk(place: Workspace, emulator: Emulator, arguments: list[str], cwd: Path) -> None:
    with place.deploy_log.open("w") as log:
        status = run_to_the_end(
            [workspace.NODE, workspace.CDK, *arguments, "--no-notices"],
            env=_environment(place, emulator),
            cwd=cwd,
            output=log,
        )
    if status != 0:
        raise DeploymentFailed(f"`cdk {arguments[0]}` failed:\n{tail(place.deploy_log)}")


def _environment(place: Workspace, emulator: Emulator) -> dict[str, str]:
    """The user's, without a word about AWS: a profile must not send a local deploy to a real account."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    return {
        **own,
        **CREDENTIALS,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": emulator.url,
        # With an endpoint of its own S3 is called by path, not by a host name per bucket.
        "AWS_ENDPOINT_URL_S3": emulator.url,
        "CDK_DEFAULT_ACCOUNT": ACCOUNT,
        "CDK_DEFAULT_REGION": REGION,
        "CDK_HOME": str(place.folder / "cdk-home"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_NODE": str(workspace.NODE),
        "PATH": f"{workspace.NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


def _client(emulator: Emulator, service: str) -> Any:
    return session().client(service, endpoint_url=emulator.url)  # type: ignore[call-overload]


def _is_bootstrapped(emulator: Emulator) -> bool:
    stacks = _client(emulator, "cloudformation").describe_stacks()["Stacks"]
    return any(stack["StackName"] == "CDKToolkit" for stack in stacks)


def _deployment(place: Workspace) -> Deployment:
    outputs = json.loads(place.outputs.read_text())
    return Deployment.from_outputs(STAGE, outputs[service_stack(STAGE)])
