"""One writer at a time: the lease, and what a job can do that has lost it."""

import threading

import pytest

from penstock.errors import LeaseLostError, StoreBusyError, StoreUnavailableError
from penstock.metrics.functions import State
from penstock.store.contract import Granularity, MetricStore
from tests.contract.store import rig


def test_a_second_job_is_told_who_holds_the_store_and_for_how_long(
    store: MetricStore, open_another: rig.Opener, wall: rig.Wall
) -> None:
    """The message names the holder and the seconds that are left."""
    wall.seconds += 13
    with pytest.raises(StoreBusyError, match=r"'the tests' for 47 more seconds") as caught:
        open_another().acquire("another job", 60.0)
    assert (caught.value.holder, caught.value.seconds) == (rig.HOLDER, 47.0)
    assert store.address in str(caught.value)


def test_the_holder_acquires_again(store: MetricStore, open_another: rig.Opener) -> None:
    """Acquiring what one holds already prolongs it."""
    store.acquire(rig.HOLDER, 100.0)
    with pytest.raises(StoreBusyError, match="100 more seconds"):
        open_another().acquire("another job", 60.0)


def test_a_lease_that_ran_out_can_be_taken(
    store: MetricStore, open_another: rig.Opener, wall: rig.Wall
) -> None:
    """A job that was killed blocks its successor until the lease has run out, no longer."""
    other = open_another()
    wall.seconds += 59
    with pytest.raises(StoreBusyError):
        other.acquire("another job", 60.0)
    wall.seconds += 1
    other.acquire("another job", 60.0)
    with pytest.raises(StoreBusyError, match="'another job'"):
        store.acquire(rig.HOLDER, 60.0)


def test_a_renewed_lease_lasts(
    store: MetricStore, open_another: rig.Opener, wall: rig.Wall
) -> None:
    """A heartbeat keeps others out."""
    wall.seconds += 50
    store.renew(rig.HOLDER, 60.0)
    wall.seconds += 50
    with pytest.raises(StoreBusyError, match="10 more seconds"):
        open_another().acquire("another job", 60.0)


def test_a_released_lease_is_free(store: MetricStore, open_another: rig.Opener) -> None:
    """A job that ends in order lets its successor start at once."""
    store.release(rig.HOLDER)
    open_another().acquire("another job", 60.0)


def test_only_the_holder_releases(store: MetricStore, open_another: rig.Opener) -> None:
    """Releasing what another job holds does nothing."""
    other = open_another()
    other.release("another job")
    with pytest.raises(StoreBusyError):
        other.acquire("another job", 60.0)
    store.renew(rig.HOLDER, 60.0)


def test_a_job_that_lost_its_lease_can_neither_renew_nor_write(
    store: MetricStore, open_another: rig.Opener, wall: rig.Wall
) -> None:
    """Once another job has the lease, every attempt of the first one says so."""
    wall.seconds += 60
    open_another().acquire("another job", 60.0)
    lost = r"held by 'another job', not by 'the tests' any more"
    with pytest.raises(LeaseLostError, match=lost):
        store.renew(rig.HOLDER, 60.0)
    with pytest.raises(LeaseLostError, match=lost), store.begin(rig.HOLDER):
        pytest.fail("the block must not be entered")


def test_a_released_lease_does_not_let_one_write(store: MetricStore) -> None:
    """Without any holder there is no writer either."""
    store.release(rig.HOLDER)
    with pytest.raises(LeaseLostError, match="held by nobody"), store.begin(rig.HOLDER):
        pytest.fail("the block must not be entered")


def test_a_lease_that_ran_out_but_was_not_taken_still_lets_one_write(
    store: MetricStore, wall: rig.Wall
) -> None:
    """A job that was held up for long goes on if nobody took its place."""
    wall.seconds += 1_000
    with store.begin(rig.HOLDER) as transaction:
        transaction.record(rig.entry(1))
    assert store.committed("checkpoint", 1) is not None


def test_nobody_takes_the_lease_in_the_middle_of_a_commit(
    store: MetricStore, open_another: rig.Opener, wall: rig.Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a lease that has run out stays with a transaction until that has ended."""
    monkeypatch.setattr("penstock.store.sqlite._BUSY_TIMEOUT", 0.05)
    if open_another.url.startswith("postgres"):
        open_another.url += "%20-clock_timeout%3D50"
    other = open_another()
    with store.begin(rig.HOLDER) as transaction:
        wall.seconds += 1_000
        with pytest.raises(StoreUnavailableError, match="locked"):
            other.acquire("another job", 60.0)
        transaction.record(rig.entry(1))
    other.acquire("another job", 60.0)


def test_a_heartbeat_waits_for_a_commit(store: MetricStore, wall: rig.Wall) -> None:
    """The thread that renews the lease and the one that merges use one store object."""
    store.define([rig.metric("m")])
    wall.seconds += 30
    heartbeat = threading.Thread(target=store.renew, args=(rig.HOLDER, 60.0))
    facts = rig.facts([(rig.metric("m").metric, 1, 1, State(count=1))])
    with store.begin(rig.HOLDER) as transaction:
        heartbeat.start()
        transaction.merge(Granularity.MINUTE, facts)
        transaction.record(rig.entry(1))
    heartbeat.join(30.0)
    assert not heartbeat.is_alive()
    wall.seconds += 59
    with pytest.raises(StoreBusyError, match="1 more second"):
        store.acquire("another job", 60.0)


def test_many_threads_share_a_store(store: MetricStore, wall: rig.Wall) -> None:
    """Readers, heartbeats and the writer run at once, each on a connection of its own."""
    store.define([rig.metric("m")])
    failures: list[BaseException] = []

    def repeat(number: int) -> None:
        try:
            for turn in range(5):
                store.renew(rig.HOLDER, 60.0)
                with store.begin(rig.HOLDER) as transaction:
                    facts = rig.facts(
                        [(rig.metric("m").metric, rig.entity("a"), 1, State(count=1))]
                    )
                    transaction.new_entities(rig.entities(["a"]))
                    transaction.merge(Granularity.MINUTE, facts)
                    transaction.record(rig.entry(number * 100 + turn, at=wall()))
                rig.states(store, "m")
        except BaseException as failure:  # noqa: BLE001 - told by the main thread
            failures.append(failure)

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert failures == []
    assert rig.states(store, "m") == {(("a",), 1): State(count=20)}
