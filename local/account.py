"""The account that every local stack lives in, and how to call it."""

import boto3

HOST = "127.0.0.1"
REGION = "us-east-1"
ACCOUNT = "000000000000"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def session() -> boto3.Session:
    """Make a boto3 session with the account's credentials and region."""
    return boto3.Session(
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region_name=REGION,
    )
