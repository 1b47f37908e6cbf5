"""The ledger: which batches and which files are in the store."""

import pytest

from penstock.errors import FilesMergedError, StoreError
from penstock.store.contract import LedgerEntry, MetricStore
from tests.contract.store import rig


def record(store: MetricStore, *entries: LedgerEntry) -> None:
    """Commit batches that are nothing but their entries in the ledger."""
    for entry in entries:
        with store.begin(rig.HOLDER) as transaction:
            transaction.record(entry)


def test_a_committed_batch_is_found_again(store: MetricStore, open_another: rig.Opener) -> None:
    """After a restart the entry is what it was."""
    entry = LedgerEntry("a folder", 7, 1_700_000_000.25, ("spans/b.parquet", "spans/a.parquet"))
    record(store, entry)
    later = open_another()
    assert later.committed("a folder", 7) == entry
    assert later.committed("a folder", 8) is None
    assert later.committed("another folder", 7) is None


def test_a_batch_cannot_be_recorded_twice(store: MetricStore) -> None:
    """Whoever forgets to ask `committed` fails before anything is merged twice."""
    record(store, rig.entry(1, "a"))
    with pytest.raises(StoreError, match=r"batch 1 of checkpoint 'checkpoint'.*already"):
        record(store, rig.entry(1, "b"))
    assert store.merged_files(["b"]) == []


def test_the_same_number_under_another_checkpoint_is_another_batch(store: MetricStore) -> None:
    """Batches are numbered per checkpoint."""
    record(store, LedgerEntry("one", 1, 1.0, ()), LedgerEntry("other", 1, 2.0, ()))
    assert store.committed("one", 1) == LedgerEntry("one", 1, 1.0, ())
    assert store.committed("other", 1) == LedgerEntry("other", 1, 2.0, ())


def test_files_that_were_merged_are_named_all(store: MetricStore) -> None:
    """A file that comes again, in whatever batch, is refused with its name."""
    names = tuple(f"spans/{number}.parquet" for number in range(5))
    record(store, rig.entry(1, *names))
    again = ("spans/new.parquet", *names[::-1])
    with pytest.raises(FilesMergedError, match=r"spans/4.parquet.* and 2 more") as caught:
        record(store, rig.entry(2, *again))
    assert caught.value.files == names[::-1]
    assert store.merged_files(again) == list(names[::-1])
    assert store.merged_files([]) == []
    assert store.committed("checkpoint", 2) is None


def test_a_file_may_be_named_twice_in_one_batch(store: MetricStore) -> None:
    """Naming it twice does not make it two files."""
    record(store, rig.entry(1, "a", "b", "a"))
    assert store.committed("checkpoint", 1) == rig.entry(1, "a", "b")


def test_thousands_of_files_fit_in_a_batch(store: MetricStore) -> None:
    """No limit on parameters of a statement limits a batch."""
    names = tuple(f"spans/{number:05}, 'x' \"é\".parquet" for number in range(20_000))
    record(store, rig.entry(1, *names))
    assert store.merged_files(names) == list(names)
