"""One module per job; each is deployed by being here."""
