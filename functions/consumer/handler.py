"""Runs the consumer that the environment names."""

from app.settings import AppSettings
from mailroom.consumer_edge import consumer_handler
from mailroom.runtime import Runtime

handler = consumer_handler(lambda: Runtime.from_env(AppSettings))
