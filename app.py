"""The entry of `cdk`: reads the outside world, here and nowhere else, and builds the stacks of one stage."""

from __future__ import annotations

import os

from aws_cdk import App, Environment

from infra.stacks import add_stacks
from infra.stage import StageConfig, Tokens

app = App()
stage = StageConfig.of(
    app.node.try_get_context("stage") or "dev",
    email_sender=app.node.get_context("email_sender"),
    emails_per_second=float(app.node.try_get_context("emails_per_second") or 14),
    alarm_email=app.node.try_get_context("alarm_email"),
    publisher_url=app.node.try_get_context("publisher_url"),
    tokens=Tokens.of(app.node.try_get_context("jwt_issuer"), app.node.try_get_context("jwt_audience")),
)
env = Environment(account=os.environ.get("CDK_DEFAULT_ACCOUNT"), region=os.environ.get("CDK_DEFAULT_REGION"))
add_stacks(app, stage=stage, env=env)
app.synth()
