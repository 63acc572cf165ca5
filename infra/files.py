"""The bucket of files that are made for callers."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from app.report_files import FOLDER
from infra.rules import do_otherwise
from infra.stage import StageConfig
from mailroom.timings import DAY

_SWEEP_AFTER = 1
"""Days after which S3 throws away the parts of an upload that nobody finished; no function works on one so long."""


class ReportBucket(Construct):
    """Private, encrypted by S3's own key; files expire by themselves, a day after the row that leads to them."""

    def __init__(self, scope: Construct, id_: str, *, stage: StageConfig) -> None:
        super().__init__(scope, id_)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=stage.on_aws,
            removal_policy=stage.removal_policy,
            lifecycle_rules=[
                s3.LifecycleRule(
                    prefix=f"{FOLDER}/",
                    expiration=Duration.days(stage.timings.file_life // DAY + 1),
                    abort_incomplete_multipart_upload_after=Duration.days(_SWEEP_AFTER),
                )
            ],
        )
        do_otherwise(
            self.bucket,
            "S1",
            because="the API logs who gets a link; access logs would take a bucket that outlives the files",
        )
        self.name = Stack.of(self).export_value(self.bucket.bucket_name)
        """What other stacks call it; written out, since cdk-nag sees the export's name in their grants."""
