"""Where the code lies that infra deploys."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = ROOT / "functions"
LAYERS = ROOT / "layers"
DEPENDENCIES = "dependencies"
"""The name of the layer that every function needs, of those that `make` builds."""
