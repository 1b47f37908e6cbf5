"""A program that is traced with OpenTelemetry and sends its spans to `penstock up`.

pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc
"""

import random

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

provider = TracerProvider(resource=Resource({"service.name": "bakery"}))
exporter = OTLPSpanExporter(insecure=True)  # to localhost:4317, or OTEL_EXPORTER_OTLP_ENDPOINT
provider.add_span_processor(BatchSpanProcessor(exporter))
tracer = provider.get_tracer("example")

for _ in range(100):
    with tracer.start_as_current_span("GET /bread", kind=SpanKind.SERVER):
        sum(random.random() for _ in range(random.randrange(50_000)))  # the work

provider.shutdown()  # sends what is left
print("sent 100 spans")
