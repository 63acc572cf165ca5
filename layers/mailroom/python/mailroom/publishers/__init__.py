"""Where the relay delivers: one module per destination, chosen by the URL of the stage's settings."""
