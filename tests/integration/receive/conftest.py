"""One receiver for the tests of a module that do not disturb it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest

from tests.integration.receive.rig import Client, Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def grpc_polls() -> Iterator[None]:
    """Start gRPC's own thread, shared by all servers, before a test could seem to leave it."""

    async def init() -> None:
        grpc.aio.init_grpc_aio()  # it asks for the running loop

    loop = asyncio.new_event_loop()
    loop.run_until_complete(init())
    yield
    grpc.aio.shutdown_grpc_aio()
    loop.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a receiver with a limit of 100,000 bytes."""
    with serving(tmp_path_factory.mktemp("landing"), request_bytes=100_000) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """Return a connection by HTTP."""
    with server.client() as connected:
        yield connected


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    """Return a connection by gRPC."""
    with server.channel() as connected:
        yield connected
