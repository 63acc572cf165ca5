"""What the service stack tells of itself, in the form that `mailroom.deployment` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aws_cdk import CfnOutput, Stack

from infra.lambda_function import LambdaFunction
from mailroom.deployment import OUTPUT


def describe(stack: Stack, whole: Mapping[str, Any], *, queues: Mapping[LambdaFunction, Mapping[str, str]]) -> None:
    """Add the stack's outputs: one for what the stage has once, one for each group of it, one for each function.

    Parameters
    ----------
    queues
        Every function of the stack, with the URLs of the queues around it by their short names.
    """
    groups = {name: group for name, group in whole.items() if isinstance(group, dict)}
    single = {name: value for name, value in whole.items() if name not in groups}
    CfnOutput(stack, OUTPUT, value=stack.to_json_string(single))
    for name, group in groups.items():
        CfnOutput(stack, f"{OUTPUT}The{_in_camel_case(name)}", value=stack.to_json_string({name: group}))
    for function, urls in queues.items():
        part = {"functions": {function.name: function.function.function_name}, "queues": urls}
        CfnOutput(stack, f"{OUTPUT}{_in_camel_case(function.name)}", value=stack.to_json_string(part))


def _in_camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
