"""What code runs in: settings, clock, randomness and outward ports, made once at the edge and passed down."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random, SystemRandom
from threading import RLock
from typing import Any, Self, TypeVar

from mailroom.clock import Clock, SystemClock
from mailroom.deployment import Deployment
from mailroom.needs import Port
from mailroom.row import bind
from mailroom.settings import Environment, Settings
from mailroom.timings import Timings

E = TypeVar("E", bound=Environment)
P = TypeVar("P", bound=Port)


class Runtime:
    """The surroundings of one process.

    Parameters
    ----------
    settings
        The machinery's settings and the application's, each of its own type.
    ports
        Instances to use instead of what `connect` would make: tests pass fakes.
    """

    def __init__(
        self,
        *settings: Environment,
        clock: Clock | None = None,
        random: Random | None = None,
        ports: Mapping[type[Port], Port] | None = None,
    ) -> None:
        self._settings = {type(kind): kind for kind in settings}
        self._ports: dict[type[Port], Port] = dict(ports or {})
        self._connecting = RLock()
        """One port connects by way of another; two threads ask for the first time at once."""
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()

    @classmethod
    def from_env(cls, *kinds: type[Environment], environ: Mapping[str, str] | None = None) -> Self:
        """Read the machinery's settings and these kinds from the environment, and bind the tables' models.

        Raises
        ------
        SettingsError
            If variables are missing or malformed; it names each.
        """
        every_kind: tuple[type[Environment], ...] = (Settings, *kinds)
        settings = [kind.from_env(environ) for kind in every_kind]
        bind(*settings)
        return cls(*settings)

    @classmethod
    def from_stack(cls, stage: str, *kinds: type[Environment]) -> tuple[Self, Deployment]:
        """Read a deployed stage's settings from its stack's outputs, as a command line does; answer the parts too.

        Raises
        ------
        NotDeployed
            If there is no such stage in this account and region.
        """
        deployment = Deployment.of(stage)
        return cls.from_env(*kinds, environ=deployment.settings), deployment

    def of(self, kind: type[E]) -> E:
        """Answer the settings of a kind."""
        settings = self._settings[kind]
        assert isinstance(settings, kind)  # noqa: S101 - narrows the type: the map is keyed by it
        return settings

    @property
    def settings(self) -> Settings:
        """The machinery's settings."""
        return self.of(Settings)

    @property
    def timings(self) -> Timings:
        """The durations of this stage."""
        return self.settings.timings

    def deadline(self, context: Any) -> float:
        """Answer the `clock.monotonic()` until which a Lambda invocation may begin new work.

        Raises
        ------
        AttributeError
            If the context does not tell the time left: without it nothing could stop in time.
        """
        remaining: int = context.get_remaining_time_in_millis()
        return self.clock.monotonic() + remaining / 1000 - self.timings.stop_margin

    def provide(self, port: type[P], instance: P) -> None:
        """Use this instance of a port from now on."""
        self._ports[port] = instance

    def use(self, port: type[P]) -> P:
        """Answer the process's instance of a port, connected on first use."""
        with self._connecting:
            if port not in self._ports:
                self._ports[port] = port.connect(self)
        instance: P = self._ports[port]  # type: ignore[assignment]
        return instance
