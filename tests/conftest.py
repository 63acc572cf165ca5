"""What every test starts from. Fake credentials and moto come before any client can be made."""

from __future__ import annotations

import os

os.environ.update(
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_SESSION_TOKEN="testing",
    AWS_DEFAULT_REGION="us-east-1",
    AWS_REGION="us-east-1",
    POWERTOOLS_METRICS_NAMESPACE="Mailroom",
    POWERTOOLS_TRACE_DISABLED="true",
)
os.environ.pop("AWS_ENDPOINT_URL", None)

from tests.log_lines import logs  # noqa: F401 - a fixture for all; nothing of ours is imported before
