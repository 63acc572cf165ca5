"""The local AWS: an emulator of our own, a real `cdk deploy` into it, and a walk through one request."""
