"""Answers HTTP requests."""

from app.api import api
from app.settings import AppSettings
from mailroom.runtime import Runtime

handler = api.handler(lambda: Runtime.from_env(AppSettings))
