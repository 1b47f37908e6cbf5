"""The example that sends spans, against a receiver."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.receiver import PATIENCE, ROOT, ReceiverProcess, landed_spans


def test_the_spans_of_the_example_land(tmp_path: Path) -> None:
    """A program with the SDK needs to know where the receiver is, and nothing else."""
    receiver = ReceiverProcess(tmp_path / "landing", tmp_path / "errors")
    receiver.start()
    try:
        endpoint = f"http://127.0.0.1:{receiver.grpc_port}"
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "send_spans.py")],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        receiver.stop()
    assert done.stdout == "sent 100 spans\n", done.stderr
    assert len(landed_spans(tmp_path / "landing")) == 100
