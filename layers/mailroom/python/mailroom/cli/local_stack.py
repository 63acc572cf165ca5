"""The stage `local`: where its emulator listens, as `make up` wrote it into `build/local.json`."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from mailroom import clients

LOCAL = "local"
PATH_VARIABLE = "MAILROOM_LOCAL_JSON"
_PLACE = Path("build") / "local.json"
_CREDENTIAL = "test"
"""The emulator takes any; this is what the stack was deployed with."""
_PATIENCE = 2


class LocalStackDown(Exception):
    """There is no local stack that answers; the message says how to start one."""


def use_local_stack() -> None:
    """Lead every AWS client of this process to the local stack.

    Raises
    ------
    LocalStackDown
        If none was deployed, or the one that was does not answer.
    """
    path = _description()
    try:
        description = json.loads(path.read_text())
        endpoint, region = str(description["endpoint_url"]), str(description["region"])
        address = urlsplit(endpoint)
        with socket.create_connection((address.hostname or "", address.port or 0), timeout=_PATIENCE):
            pass
    except FileNotFoundError as error:
        raise LocalStackDown(
            f"there is no {path}: start the local stack with `make up`, and call this in the project's folder "
            f"or set {PATH_VARIABLE}"
        ) from error
    except OSError as error:
        raise LocalStackDown(f"the local stack of {path} does not answer ({error}): start it with `make up`") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LocalStackDown(f"{path} does not describe a local stack: start it again with `make up`") from error
    _lead_to(endpoint, region)


def _description() -> Path:
    named = os.environ.get(PATH_VARIABLE)
    if named:
        return Path(named)
    here = Path.cwd()
    return next((found for folder in (here, *here.parents) if (found := folder / _PLACE).is_file()), here / _PLACE)


def _lead_to(endpoint: str, region: str) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_ENDPOINT_URL", "AWS_PROFILE"))]:
        del os.environ[name]
    os.environ.pop("AWS_SESSION_TOKEN", None)
    os.environ.update(
        AWS_ENDPOINT_URL=endpoint,
        AWS_REGION=region,
        AWS_DEFAULT_REGION=region,
        AWS_ACCESS_KEY_ID=_CREDENTIAL,
        AWS_SECRET_ACCESS_KEY=_CREDENTIAL,
    )
    clients.forget()
