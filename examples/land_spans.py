"""Landing spans of your own as a Parquet file, where `penstock aggregate` finds them.

Needs pyarrow (the extra `metrics`), and neither Spark nor Java.
"""

import os
import secrets
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.clock import wall_time
from penstock.land import LandingFolder
from penstock.telemetry import SPANS, SpanKind, StatusCode


def span(service: str, route: str, milliseconds: int, *, failed: bool = False) -> dict[str, object]:
    """Return a request that a service has answered just now; columns left out are null."""
    start = int(wall_time() * 1_000_000_000)
    return {
        "trace_id": secrets.token_bytes(16),
        "span_id": secrets.token_bytes(8),
        "name": f"GET {route}",
        "kind": SpanKind.SERVER,
        "start_ns": start,
        "end_ns": start + milliseconds * 1_000_000,
        "status_code": StatusCode.ERROR if failed else StatusCode.OK,
        "service_name": service,
        "service_instance": "pod-1",
        "http_method": "GET",
        "http_route": route,
        "http_status_code": 500 if failed else 200,
        "attributes": {"user.tier": "gold"},
    }


def land(rows: list[dict[str, object]], landing: Path) -> Path:
    """Write *rows* so that a reader sees all of them or none; no name is ever used twice."""
    name = f"{int(wall_time())}-{secrets.token_hex(8)}.parquet"
    target = landing / "spans" / name
    hidden = target.with_name(f".{name}")  # a name with a dot is left alone
    with hidden.open("xb") as file:
        pq.write_table(pa.Table.from_pylist(rows, SPANS), file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())
    hidden.rename(target)
    return target


with tempfile.TemporaryDirectory() as folder:
    landing = Path(folder)
    LandingFolder(landing).prepare()  # creates spans/, points/, logs/ and what else is needed
    land([span("cart", "/cart/{id}", 20), span("cart", "/cart/{id}", 70, failed=True)], landing)

    (waiting,) = LandingFolder(landing).pending()
    print(
        f"{waiting.name} waits; penstock aggregate --once --landing … --store metrics.db merges it"
    )
    assert waiting.name.startswith("spans/")
    assert pq.read_table(landing / waiting.name).num_rows == 2
