"""What a developer can do with a local stack that runs."""

import json
from collections.abc import Mapping
from typing import Any

from local.mailbox import Mailbox
from local.stack import LocalStack


def addresses(stack: LocalStack) -> dict[str, str]:
    """Return the URLs worth knowing."""
    return {
        "API": f"{stack.api_url}/api/v1",
        "operators' API": f"{stack.ops_url}/ops/v1",
        "captured e-mails": Mailbox(stack.endpoint_url).url,
        "AWS endpoint": stack.endpoint_url,
    }


def commands(stack: LocalStack, repo_id: str | None = None) -> dict[str, str]:
    """Return shell lines by what they do, each complete and safe to paste."""
    url = f"{stack.api_url}/api/v1"
    new_repo = _curl("POST", f"{url}/repos", {"name": "docs", "owner_id": "team-1"}, key="docs-1")
    lines = {
        "Say where to write to an owner": _curl(
            "PUT", f"{url}/owners/team-1", {"email": "team-1@example.com", "repo_quota": 100}
        ),
        "Confirm the address by the token that was sent to it, once it was": _confirm_by_the_latest_token(stack),
        "Create a repository": new_repo,
        "The same again: nothing happens twice, Idempotent-Replayed says so": new_repo,
        "Read the owner": _curl("GET", f"{url}/owners/team-1"),
        "See the e-mails": _curl("GET", Mailbox(stack.endpoint_url).url),
    }
    if repo_id:
        lines["Read the repository of the tour"] = _curl("GET", f"{url}/repos/{repo_id}")
    return lines


def _confirm_by_the_latest_token(stack: LocalStack) -> str:
    """Write the command that reads the token where a person would read the e-mail."""
    latest = f"curl -sS '{Mailbox(stack.endpoint_url).url}' | grep -oE 'owner team-1: [0-9a-f]{{32}}' | tail -n 1"
    post = _curl("POST", f"{stack.api_url}/api/v1/owners/team-1/email-confirmation", {"token": "@"}, key="confirm-1")
    return post.replace("@", f"'$({latest} | cut -d' ' -f3)'")


def next_steps() -> list[str]:
    """Return where to go from here."""
    return [
        "A consumer is one file in layers/app/python/app/consumers: write one, and `make up` deploys it here.",
        "`make e2e` tests a deployed stack of its own; `make check` is what a change has to pass.",
    ]


def _curl(method: str, url: str, body: Mapping[str, Any] | None = None, key: str | None = None) -> str:
    """Write a curl command: single quotes, since the path of the API has `$default` in it."""
    words = ["curl -sS -i -w '\\n'"]
    if method != "GET":
        words.append(f"-X {method}")
    words.append(f"'{url}'")
    if key:
        words.append(f"-H 'Idempotency-Key: {key}'")
    if body:
        words.append(f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'")
    return " ".join(words)
