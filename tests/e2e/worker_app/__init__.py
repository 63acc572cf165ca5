"""An application as small as they come: what `mailroom worker` runs in its end-to-end tests."""
