"""The receiver: both servers, the intake and the landing, from the first to the last request."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.clock import SYSTEM_CLOCK
from penstock.receive.grpc_server import GrpcServer
from penstock.receive.http_server import HttpServer
from penstock.receive.intake import Intake

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.land.landing import Landing
    from penstock.receive.settings import ReceiveSettings

__all__ = ["Receiver"]

log = logging.getLogger("penstock.receive")

_LINGER = 2.0  # seconds of the stop's time that are left for converting what is on the disk


class Receiver:
    """Receives until it is told to stop. All methods belong to one event loop."""

    def __init__(
        self,
        landing: Landing,
        settings: ReceiveSettings,
        figures: Callable[[Intake], Callable[[], tuple[bytes, str]]] | None = None,
    ) -> None:
        self.landing = landing
        self.settings = settings
        self.intake = Intake(landing, settings, landing.settings.remember)
        self._grpc = GrpcServer(self.intake, settings, self.is_ready)
        exposed = None if figures is None else figures(self.intake)
        self._http = HttpServer(self.intake, settings, self.is_ready, exposed)
        self.grpc_port = self.http_port = 0

    def is_ready(self) -> bool:
        """Whether requests would be accepted now."""
        stats = self.landing.stats()
        return not self.intake.is_draining and stats.trouble is None and self.landing.has_room()

    async def start(self) -> None:
        """Take the folder and listen, or raise what is in the way and leave nothing behind."""
        try:
            self.intake.remember(self.landing.open())
            self.http_port = await self._http.start()
            self.grpc_port = await self._grpc.start()
        except BaseException:
            await self.stop(0.0)
            raise

    async def stop(self, allowed: float) -> bool:
        """Answer what is under way, land it, end; return whether all was done.

        It takes *allowed* seconds, and a moment.
        """
        deadline = SYSTEM_CLOCK.now() + allowed
        await self._http.close()
        left = await self.intake.drain(max(0.0, allowed - _LINGER))
        # Whoever is told to come again is told so by a server that still speaks.
        await self._grpc.stop(max(0.0, min(1.0, deadline - SYSTEM_CLOCK.now())))
        await self._http.stop()
        remaining = max(0.0, deadline - SYSTEM_CLOCK.now())
        loop = asyncio.get_running_loop()
        is_done = await loop.run_in_executor(None, self.landing.close, remaining)
        if left:
            log.warning("receive.stopped_early: %d requests had not reached the disk", left)
        return is_done and not left
