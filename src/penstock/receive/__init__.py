"""The edge: OTLP over gRPC and HTTP, answered when it is on the disk."""
