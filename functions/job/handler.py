"""Runs the job that the environment names."""

from app.settings import AppSettings
from mailroom.job import job_handler
from mailroom.runtime import Runtime

handler = job_handler(lambda: Runtime.from_env(AppSettings))
