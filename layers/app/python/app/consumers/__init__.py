"""One module per consumer; each is deployed by being here."""
