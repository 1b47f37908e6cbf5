"""OTLP over gRPC: the three Export calls, and the standard health check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from penstock.errors import ReceiverError
from penstock.receive.access import check_token, pem, ssl_context
from penstock.receive.outcome import Outcome, Verdict
from penstock.telemetry.schema import Signal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from penstock.receive.intake import Intake
    from penstock.receive.settings import ReceiveSettings

__all__ = ["RESPONSES", "RETRYABLE", "GrpcServer", "response_of", "status_of"]

_SERVICES = {
    Signal.SPANS: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.POINTS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}
# Signal -> its response, and what that calls the records it left out.
RESPONSES: Mapping[Signal, tuple[Any, str]] = {
    Signal.SPANS: (ExportTraceServiceResponse, "rejected_spans"),
    Signal.POINTS: (ExportMetricsServiceResponse, "rejected_data_points"),
    Signal.LOGS: (ExportLogsServiceResponse, "rejected_log_records"),
}
_CODES = {
    Verdict.MALFORMED: grpc.StatusCode.INVALID_ARGUMENT,
    Verdict.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Verdict.EXHAUSTED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Verdict.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
}
RETRYABLE = (Verdict.EXHAUSTED, Verdict.UNAVAILABLE)
# On one connection; a client's further calls wait there. A limit of all calls together would be
# gRPC's own, and its refusal has no RetryInfo: clients would take it for final.
_CONCURRENT_CALLS = 1024
# grpc.health.v1.HealthCheckResponse, whose only field is an enumeration.
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"


def response_of(signal: Signal, outcome: Outcome) -> Any:  # noqa: ANN401 - the signal's message
    """Return the response to an accepted request."""
    kind, counter = RESPONSES[signal]
    response = kind()
    if outcome.rejected or outcome.message:
        setattr(response.partial_success, counter, outcome.rejected)
        response.partial_success.error_message = outcome.message
    return response


def status_of(code: int, outcome: Outcome, retry_after: float) -> Status:
    """Return an error as a message, with what the client can do about it."""
    status = Status(code=code, message=outcome.message)
    if outcome.verdict in RETRYABLE:
        delay = Duration()
        delay.FromNanoseconds(int(retry_after * 1e9))
        status.details.add().Pack(RetryInfo(retry_delay=delay))
    elif outcome.verdict is Verdict.MALFORMED:
        violation = BadRequest.FieldViolation(description=outcome.message)
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    return status


class GrpcServer:
    """Serves OTLP/gRPC from an event loop."""

    def __init__(
        self, intake: Intake, settings: ReceiveSettings, is_ready: Callable[[], bool]
    ) -> None:
        self._intake = intake
        self._settings = settings
        self._is_ready = is_ready
        self._server: grpc.aio.Server | None = None

    async def start(self) -> int:
        """Listen; return the port."""
        server = grpc.aio.server(
            options=[
                ("grpc.max_concurrent_streams", _CONCURRENT_CALLS),
                ("grpc.max_receive_message_length", self._settings.request_bytes),
                ("grpc.so_reuseport", 0),  # a second receiver must not share the port
            ],
        )
        server.add_generic_rpc_handlers(tuple(self._handlers()))
        address = f"{_bracketed(self._settings.host)}:{self._settings.grpc_port}"
        try:
            port: int = self._listen(server, address)
        except RuntimeError as error:
            raise ReceiverError(
                f"cannot listen on {address} for gRPC: the port is in use, or not allowed; stop "
                "what uses it, or choose another with --grpc-port"
            ) from error
        await server.start()
        self._server = server
        return port

    async def stop(self, grace: float) -> None:
        """Refuse new calls; let those under way end."""
        if self._server is not None:
            await self._server.stop(grace)

    def _listen(self, server: grpc.aio.Server, address: str) -> int:
        tls = self._settings.tls
        if tls is None:
            return int(server.add_insecure_port(address))
        ssl_context(tls)  # says what is wrong with the files, which gRPC does not
        authority = None if tls.client_ca is None else pem("client_ca", tls.client_ca)
        credentials = grpc.ssl_server_credentials(
            [(pem("key", tls.key), pem("certificate", tls.certificate))],
            root_certificates=authority,
            require_client_auth=authority is not None,
        )
        return int(server.add_secure_port(address, credentials))

    def _handlers(self) -> list[grpc.GenericRpcHandler]:
        handlers = [
            grpc.method_handlers_generic_handler(
                service, {"Export": grpc.unary_unary_rpc_method_handler(self._export(signal))}
            )
            for signal, service in _SERVICES.items()
        ]
        check = grpc.unary_unary_rpc_method_handler(self._check)
        health = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": check})
        return [*handlers, health]

    def _export(
        self, signal: Signal
    ) -> Callable[[bytes, grpc.aio.ServicerContext], Awaitable[bytes]]:
        async def export(payload: bytes, context: grpc.aio.ServicerContext) -> bytes:
            metadata = dict(context.invocation_metadata() or ())
            denied = check_token(metadata.get("authorization"), self._settings.tokens)
            if denied is not None:
                outcome = self._intake.refuse(signal, denied)
            else:
                outcome = await self._intake.accept(signal, payload)
            if outcome.verdict is not Verdict.ACCEPTED:
                await self._abort(context, outcome)
            serialized: bytes = response_of(signal, outcome).SerializeToString()
            return serialized

        return export

    async def _abort(self, context: grpc.aio.ServicerContext, outcome: Outcome) -> None:
        code = _CODES[outcome.verdict]
        status = status_of(code.value[0], outcome, self._settings.retry_after)
        trailing = (("grpc-status-details-bin", status.SerializeToString()),)
        await context.abort(code, outcome.message, trailing)

    async def _check(self, _request: bytes, _context: grpc.aio.ServicerContext) -> bytes:
        return _SERVING if self._is_ready() else _NOT_SERVING


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
