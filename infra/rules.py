"""The AwsSolutions rules of cdk-nag, and reasons to do otherwise."""

from __future__ import annotations

from aws_cdk import Acknowledgment, Validations
from cdk_nag import AwsSolutionsChecks
from constructs import Construct


def check_rules(scope: Construct) -> None:
    """Hold everything below against the rules; `cdk` refuses what breaks one without a reason."""
    Validations.of(scope).add_plugins(AwsSolutionsChecks(scope))


def do_otherwise(construct: Construct, rule: str, *, because: str) -> None:
    """Break a rule for this construct, with the reason.

    Parameters
    ----------
    rule
        What stands behind `AwsSolutions-`, e.g. `SQS3`, or `IAM5[Resource::*]` for one finding of several;
        see https://github.com/cdklabs/cdk-nag/blob/main/RULES.md
    """
    Validations.of(construct).acknowledge(Acknowledgment(id=f"AwsSolutions-{rule}", reason=because))
