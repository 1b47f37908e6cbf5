"""The examples of the batcher say the same, whichever way they are written."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def output_of(example: str) -> list[str]:
    """Run an example and return the lines that it printed."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


def test_threads_and_coroutines_get_the_same_answers() -> None:
    """One script through both interfaces prints the same lines."""
    threads = output_of("batcher_threads.py")
    assert len(threads) > 5
    assert output_of("batcher_asyncio.py") == threads
