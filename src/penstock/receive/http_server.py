"""OTLP over HTTP: protobuf and JSON, gzip; beside it health and the receiver's own figures."""

from __future__ import annotations

import asyncio
import json
import math
import os
import zlib
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import web
from google.protobuf.json_format import MessageToDict
from google.rpc.status_pb2 import Status

from penstock.errors import ReceiverError
from penstock.receive.access import check_token, ssl_context
from penstock.receive.grpc_server import RETRYABLE, response_of, status_of
from penstock.receive.intake import aside
from penstock.receive.outcome import Outcome, Verdict
from penstock.telemetry.otlp_json import from_json
from penstock.telemetry.requests import MalformedError
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.receive.intake import Intake
    from penstock.receive.settings import ReceiveSettings

__all__ = ["HttpServer"]

# Counts bytes on their way in, or returns why there is no room.
Reserve: TypeAlias = "Callable[[int], Outcome | None]"

_PATHS = {Signal.SPANS: "/v1/traces", Signal.POINTS: "/v1/metrics", Signal.LOGS: "/v1/logs"}
_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
# HTTP status and gRPC's code, which the body carries.
_STATUSES = {
    Verdict.MALFORMED: (400, 3),
    Verdict.TOO_LARGE: (413, 3),
    Verdict.UNSUPPORTED: (415, 3),
    Verdict.UNAUTHENTICATED: (401, 16),
    Verdict.EXHAUSTED: (429, 8),
    Verdict.UNAVAILABLE: (503, 14),
}
_ELSEWHERE = {404: 5, 405: 12}  # paths and methods that are none
_GZIP = 16 + zlib.MAX_WBITS
_STEP = 4 << 10  # bytes that are unpacked at once
_STOP = 5.0  # seconds for connections that linger


class HttpServer:
    """Serves OTLP/HTTP from an event loop."""

    def __init__(
        self,
        intake: Intake,
        settings: ReceiveSettings,
        is_ready: Callable[[], bool],
        figures: Callable[[], tuple[bytes, str]] | None = None,
    ) -> None:
        self._intake = intake
        self._settings = settings
        self._is_ready = is_ready
        self._figures = figures
        self._runner: web.AppRunner | None = None
        self._site: web.TCPSite | None = None

    async def start(self) -> int:
        """Listen; return the port."""
        app = web.Application(middlewares=[_explain])
        for signal, path in _PATHS.items():
            app.router.add_post(path, self._export(signal))
        app.router.add_get("/healthz", self._live)
        app.router.add_get("/readyz", self._ready)
        if self._figures is not None:
            app.router.add_get("/metrics", self._metrics)
        tls = self._settings.tls
        context = None if tls is None else ssl_context(tls)
        # What comes compressed is unpacked here, where it is known how much may come out.
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=_STOP)
        await runner.setup()
        host, port = self._settings.host, self._settings.http_port
        try:
            site = web.TCPSite(runner, host, port, ssl_context=context, reuse_port=False)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            raise ReceiverError(
                f"cannot listen on {host}:{port} for HTTP: {_reason(error)}; stop what uses the "
                "port, or choose another with --http-port"
            ) from error
        self._runner, self._site = runner, site
        return int(runner.addresses[0][1])

    async def close(self) -> None:
        """Take no new connections."""
        if self._site is not None:
            await self._site.stop()

    async def stop(self) -> None:
        """End the connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _export(self, signal: Signal) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def export(request: web.Request) -> web.Response:
            outcome = check_token(request.headers.get("Authorization"), self._settings.tokens)
            if outcome is None:
                with self._intake.reserved() as reserve:
                    payload = await self._payload(signal, request, reserve)
                if isinstance(payload, bytes):
                    outcome = await self._intake.accept(signal, payload)
                    return self._answer(signal, request, outcome)
                outcome = payload
            self._intake.refuse(signal, outcome)
            return self._answer(signal, request, outcome)

        return export

    async def _payload(
        self, signal: Signal, request: web.Request, reserve: Reserve
    ) -> bytes | Outcome:
        """Return the request as serialized protobuf, or why it is none."""
        if request.content_type not in {_PROTOBUF, _JSON}:
            return Outcome(
                Verdict.UNSUPPORTED,
                f"content type {request.content_type!r}: send {_PROTOBUF} or {_JSON}",
            )
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in {"identity", "", "gzip"}:
            return Outcome(Verdict.UNSUPPORTED, f"content encoding {encoding!r}: send gzip or none")
        body = await self._body(request, reserve)
        if isinstance(body, bytes) and encoding == "gzip":
            body = await aside(len(body), self._unpacked, body)
            body = reserve(len(body)) or body if isinstance(body, bytes) else body
        if isinstance(body, Outcome) or request.content_type == _PROTOBUF:
            return body
        try:
            return await aside(len(body), from_json, signal, body)
        except MalformedError as error:
            return Outcome(Verdict.MALFORMED, str(error))

    async def _body(self, request: web.Request, reserve: Reserve) -> bytes | Outcome:
        most = self._settings.request_bytes
        if (request.content_length or 0) > most:
            return self._too_large()
        chunks, size = [], 0
        patience = self._settings.answer_timeout
        try:
            async with asyncio.timeout(patience):
                async for chunk in request.content.iter_any():
                    size += len(chunk)
                    refusal = self._too_large() if size > most else reserve(len(chunk))
                    if refusal is not None:
                        return refusal
                    chunks.append(chunk)
        except TimeoutError:
            message = f"the request did not come within {patience:g} s; send this again"
            return Outcome(Verdict.UNAVAILABLE, message)
        except ConnectionError:  # nobody will read this answer
            return Outcome(Verdict.UNAVAILABLE, "the connection was lost")
        except web.RequestPayloadError as error:
            return Outcome(Verdict.MALFORMED, f"the body is not what HTTP allows: {error}")
        return b"".join(chunks)

    def _unpacked(self, body: bytes) -> bytes | Outcome:
        """Return what gzip has packed, in one member or several."""
        most = self._settings.request_bytes
        unpacker = zlib.decompressobj(_GZIP)
        pieces, size, position = [], 0, 0
        # In small steps: what is behind a member's end is copied each time.
        while position < len(body):
            if unpacker.eof:
                unpacker = zlib.decompressobj(_GZIP)
            step = body[position : position + _STEP]
            try:
                piece = unpacker.decompress(step, most - size + 1)
            except zlib.error as error:
                return Outcome(Verdict.MALFORMED, f"the body is not gzip: {error}")
            size += len(piece)
            if size > most:
                return self._too_large()
            pieces.append(piece)
            position += len(step) - len(unpacker.unused_data)
        if body and not unpacker.eof:
            return Outcome(Verdict.MALFORMED, "the body is not gzip: it ends too early")
        return b"".join(pieces)

    def _too_large(self) -> Outcome:
        most = self._settings.request_bytes
        return Outcome(Verdict.TOO_LARGE, f"a request may have {most:,} bytes; send smaller ones")

    def _answer(self, signal: Signal, request: web.Request, outcome: Outcome) -> web.Response:
        content_type, pause = request.content_type, self._settings.retry_after
        if outcome.verdict is Verdict.ACCEPTED:
            return _message(200, response_of(signal, outcome), content_type)
        status, code = _STATUSES[outcome.verdict]
        response = _message(status, status_of(code, outcome, pause), content_type)
        if outcome.verdict in RETRYABLE:
            response.headers["Retry-After"] = str(math.ceil(pause))
        if outcome.verdict is Verdict.UNAUTHENTICATED:
            response.headers["WWW-Authenticate"] = "Bearer"
        if not request.content.is_eof():
            response.force_close()  # what is still to come is not read
        return response

    async def _live(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._is_ready():
            return web.Response(text="ready\n")
        return web.Response(status=503, text="not ready\n")

    async def _metrics(self, _request: web.Request) -> web.Response:
        assert self._figures is not None
        text, content_type = self._figures()
        return web.Response(body=text, headers={"Content-Type": content_type})


def _reason(error: OSError) -> str:
    # asyncio's own text names the address once more.
    return os.strerror(error.errno).lower() if error.errno else str(error)


@web.middleware
async def _explain(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Say in a Status, as every error, that a path or method is none."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status not in _ELSEWHERE:
            raise
        text = f"{request.method} {request.path}: {error.reason}; OTLP is POST to "
        text += ", ".join(_PATHS.values())
        status = Status(code=_ELSEWHERE[error.status], message=text)
        response = _message(error.status, status, request.content_type)
        if "Allow" in error.headers:
            response.headers["Allow"] = error.headers["Allow"]
        return response


def _message(status: int, message: object, content_type: str) -> web.Response:
    """Return a message in the encoding of the request; JSON for one that has neither."""
    if content_type == _PROTOBUF:
        body: bytes = message.SerializeToString()  # type: ignore[attr-defined] # any message
        return web.Response(status=status, body=body, content_type=_PROTOBUF)
    text = json.dumps(MessageToDict(message))
    return web.Response(status=status, text=text, content_type=_JSON)
