"""The HTTP edge: strict bodies, callers, idempotent commands, problems."""
