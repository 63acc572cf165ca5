"""Run the sagas of this application."""

from __future__ import annotations

from mailroom.declarations import discover
from mailroom.saga import Saga
from mailroom.saga_consumer import saga_consumer

sagas = saga_consumer(__name__, discover("app.sagas", Saga))
