"""Its consumers."""
