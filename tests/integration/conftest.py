"""What tests that start other processes share."""

import os

import pytest


@pytest.fixture
def untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep coverage out of the processes that the test starts.

    A thread that is traced takes a lock of coverage's. A child that is forked at that moment
    has the lock and no thread that would let go of it, and waits for ever.
    """
    for name in [name for name in os.environ if name.startswith("COVERAGE_")]:
        monkeypatch.delenv(name)
