"""Answers operators."""

from app.settings import AppSettings
from mailroom.operations.api import api
from mailroom.runtime import Runtime

handler = api.handler(lambda: Runtime.from_env(AppSettings))
