"""Names and passwords for destinations that don't know our role: out of Secrets Manager, never out of a URL."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mailroom import clients
from mailroom.failures import Unavailable
from mailroom.needs import Need


def secret_need(name: str) -> Need:
    """Answer what reading a secret needs, by its name or its whole ARN.

    A secret's ARN ends with a hyphen and six characters that nobody knows before it is made.
    https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_iam-policies.html
    """
    resource = name if name.startswith("arn:") else f"secretsmanager:secret:{name}-??????"
    return Need(("secretsmanager:GetSecretValue",), resource)


def read_secret(name: str, *fields: str, may_have: Sequence[str] = ()) -> dict[str, str]:
    """Answer these fields of a secret that is a JSON object, all of them texts, and others that it may have.

    Raises
    ------
    Unavailable
        If it is no such secret; its value is not told.
    Exception
        What Secrets Manager answers.
    """
    text = clients.secretsmanager_once().get_secret_value(SecretId=name).get("SecretString", "")
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    found = value if isinstance(value, dict) else {}
    if not all(isinstance(found.get(field), str) and found[field] for field in fields):
        wanted = ", ".join(f'"{field}": "…"' for field in fields)
        raise Unavailable(f"the secret {name} does not hold what it should: put {{{wanted}}} into it")
    others = (field for field in may_have if isinstance(found.get(field), str))
    return {field: found[field] for field in (*fields, *others)}
