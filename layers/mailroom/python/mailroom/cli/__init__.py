"""The operators' command `mailroom`: not in the Lambda asset, and the only code that imports Typer and Rich."""
