"""It has no jobs."""
