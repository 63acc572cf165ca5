"""The operators' HTTP API: what waits, what died, how the stage is doing, and redrive."""
