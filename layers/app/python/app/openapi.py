"""Write the OpenAPI document of the domain's API: `python -P -m app.openapi > docs/openapi.json`."""

from __future__ import annotations

import json
import sys

from app.api import ABOUT, api
from mailroom.http.openapi import document


def written() -> str:
    """Answer the document as its file holds it."""
    return json.dumps(document(api, ABOUT), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(written())
