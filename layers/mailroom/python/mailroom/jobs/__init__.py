"""The machinery's own jobs."""
