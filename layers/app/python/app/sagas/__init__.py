"""One module per saga; each is run by the consumer `sagas`."""
