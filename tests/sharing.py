"""How several processes share the tests (`pytest -n`)."""

from __future__ import annotations

from xdist.scheduler.loadscope import LoadScopeScheduling

TOGETHER = "tests/infra/"
"""Tests that stay in one process: what they synthesize is made once in it, and CDK's own process is started once."""
APART = "tests/infra/test_handlers.py"


class Sharing(LoadScopeScheduling):
    """Gives each process that is idle the next test, the largest group first."""

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER if nodeid.startswith(TOGETHER) and not nodeid.startswith(APART) else nodeid
