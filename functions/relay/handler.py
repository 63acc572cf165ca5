"""Delivers the shards of the outbox that have new mail."""

from app.settings import AppSettings
from mailroom.outbox.relay import relay_handler
from mailroom.runtime import Runtime

handler = relay_handler(lambda: Runtime.from_env(AppSettings))
