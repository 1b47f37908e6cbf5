"""What holds for every test: none leaves a thread behind. And a server for those that need one."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.support.postgres import PostgresServer

# Long enough for a thread that is on its way out on a busy machine. Only a test that fails, or
# whose mark allows survivors, ever waits this long.
_GRACE = 5.0


def pytest_configure() -> None:
    """Take Ctrl-C, also where the run was started in the background, which ignores it.

    What is ignored would be ignored by every process that a test starts, too.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _joinable(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    """Leave out threads that Python did not start: they cannot be joined, nor seen to end."""
    return [thread for thread in threads if not isinstance(thread, threading._DummyThread)]


def _survivors(threads: Iterable[threading.Thread]) -> list[threading.Thread]:
    """Give the threads time to end, and return those that did not.

    The first one that outlasts its grace ends the wait, so that many stuck threads cost no more
    than one.
    """
    waiting = list(threads)
    for thread in waiting:
        thread.join(_GRACE)
        if thread.is_alive():
            break
    return [thread for thread in waiting if thread.is_alive()]


def _is_allowed(thread: threading.Thread, mark: pytest.Mark | None) -> bool:
    """Whether the test's `leaves_threads` mark, if it has one, covers this thread."""
    if mark is None:
        return False
    return not mark.args or thread.name.startswith(tuple(mark.args))


@pytest.fixture(autouse=True)
def no_thread_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that ends with threads alive which it did not find."""
    found = set(threading.enumerate())
    yield
    mark = request.node.get_closest_marker("leaves_threads")
    started = [thread for thread in _joinable(threading.enumerate()) if thread not in found]
    left = _survivors(thread for thread in started if not _is_allowed(thread, mark))
    if left:
        names = ", ".join(sorted(thread.name for thread in left))
        pytest.fail(f"the test left {len(left)} thread(s) behind: {names}", pytrace=False)


@pytest.fixture(autouse=True)
def the_log_stays_as_it_was() -> Iterator[None]:
    """Take back how a command that ran in this process has set the log up."""
    logger = logging.getLogger("penstock")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Run one PostgreSQL server for all tests that ask for it; each creates its own database."""
    from tests.support.postgres import PostgresServer  # noqa: PLC0415 - psycopg is an extra

    with PostgresServer.started() as server:
        yield server
