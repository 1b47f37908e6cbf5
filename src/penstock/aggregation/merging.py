"""L2: the partial states of a micro-batch on their way into the store, in one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.admission import Admission
from penstock.aggregation.meters import COUNT_SLOT, SUM_SLOT, VALUE_SLOT
from penstock.aggregation.partials import FACTS, SLOTS, combine_facts, combine_slots
from penstock.aggregation.rollup import granular
from penstock.aggregation.topn import keep_slowest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.aggregation.admission import Admitted
    from penstock.aggregation.aggregator import Horizon
    from penstock.aggregation.partials import Partials
    from penstock.store.contract import LedgerEntry, MetricStore, Transaction

__all__ = ["Merger"]

_NS_PER_MINUTE = 60_000_000_000
# However many of these are added up, the sum is finite. PostgreSQL refuses one that is not, and
# a sender's idea of "not set yet" may be the largest number there is.
_LARGEST = 1e300


class Merger:
    """Merges batches into one store, for the job that holds its lease."""

    def __init__(self, store: MetricStore, holder: str, max_entities: int) -> None:
        self._store = store
        self._holder = holder
        self._admission = Admission(store, max_entities)
        self._summed = [
            known.metric for known in store.catalogue().values() if known.function == "labelAvg"
        ]

    def merge(self, partials: Partials, entry: LedgerEntry, horizon: Horizon) -> Mapping[str, int]:
        """Commit one batch; return how many rows were left out, by cause.

        Raises FilesMergedError if any of its files was merged before; nothing is merged then.
        """
        left_out: dict[str, int] = {}
        for cause, rows in _pairs(partials.counts):
            left_out[cause] = left_out.get(cause, 0) + rows
        admitted = self._admission.admit(partials)
        recent, expired = _recent(admitted.partials, horizon)
        admitted = replace(admitted, partials=recent)
        try:
            with self._store.begin(self._holder) as transaction:
                self._write(transaction, admitted, horizon)
                transaction.record(entry)
        except BaseException:
            # It may have been committed all the same: the answer may be what was lost.
            self._admission.forget()
            raise
        self._admission.confirm(recent)
        return {**left_out, **admitted.left_out, **expired}

    def _write(self, transaction: Transaction, admitted: Admitted, horizon: Horizon) -> None:
        partials = admitted.partials
        transaction.new_entities(partials.entities)
        transaction.new_meters(partials.meters)
        facts, slots = partials.facts, partials.slots
        if partials.readings.num_rows:
            readings = _bounded(partials.readings, "value")
            deltas = admitted.placed(transaction.read_deltas(readings))
            facts = combine_facts(pa.concat_tables([facts, _delta_facts(deltas)]))
            slots = combine_slots(pa.concat_tables([slots, _delta_slots(deltas)]))
        facts = _bounded(facts, "real")
        for granularity, table in granular(facts, slots, horizon, self._summed):
            if table.num_rows:
                transaction.merge(granularity, table)
        if partials.topn.num_rows:
            transaction.rank(keep_slowest(partials.topn))


def _recent(partials: Partials, horizon: Horizon) -> tuple[Partials, dict[str, int]]:
    """Leave out records that are past their retention; count them."""
    topn = partials.topn.filter(pc.field("bucket") >= horizon.records)
    oldest = horizon.records * _NS_PER_MINUTE
    readings = partials.readings.filter(pc.field("time_ns") >= oldest)
    kept = replace(partials, topn=topn, readings=readings)
    lost = partials.topn.num_rows - topn.num_rows
    lost += _points(partials.readings) - _points(readings)
    return kept, {"expired_records": lost} if lost else {}


def _bounded(table: pa.Table, name: str) -> pa.Table:
    bounded = np.clip(table[name].to_numpy(), -_LARGEST, _LARGEST)
    return table.set_column(table.schema.get_field_index(name), name, pa.array(bounded))


def _points(readings: pa.Table) -> int:
    """Return how many points *readings* come from; a histogram's are many."""
    once = pa.array([VALUE_SLOT, COUNT_SLOT])
    return int(pc.sum(pc.is_in(readings["slot"], once)).as_py() or 0)


def _pairs(counts: pa.Table) -> list[tuple[str, int]]:
    return list(zip(counts["cause"].to_pylist(), counts["rows"].to_pylist(), strict=True))


def _delta_facts(deltas: pa.Table) -> pa.Table:
    """Return increases of sums, and of histograms' counts and sums, as facts.

    Every minute that changes has one, be it of zeros: its slots have to find it.
    """
    slot, delta = deltas["slot"], deltas["delta"]
    nothing = pa.scalar(0.0)
    is_count = pc.equal(slot, COUNT_SLOT)
    is_sum = pc.or_(pc.equal(slot, SUM_SLOT), pc.equal(slot, VALUE_SLOT))
    zeros = pa.array([0] * deltas.num_rows, pa.int64())
    columns = {
        "metric": deltas["metric"],
        "entity": deltas["entity"],
        "bucket": deltas["bucket"],
        "count": pc.if_else(is_count, delta, nothing).cast(pa.int64()),
        "total": zeros,
        "base": zeros,
        "real": pc.if_else(is_sum, delta, nothing),
        **dict.fromkeys(("low", "high", "last"), pa.nulls(deltas.num_rows, pa.float64())),
        "last_at": pa.nulls(deltas.num_rows, pa.int64()),
    }
    return pa.table(columns).cast(FACTS)


def _delta_slots(deltas: pa.Table) -> pa.Table:
    """Return increases of histograms' buckets as slots."""
    special = pa.array([VALUE_SLOT, COUNT_SLOT, SUM_SLOT])
    chosen = deltas.filter(
        pc.and_(pc.invert(pc.is_in(deltas["slot"], special)), pc.not_equal(deltas["delta"], 0.0))
    )
    columns = {
        "metric": chosen["metric"],
        "entity": chosen["entity"],
        "bucket": chosen["bucket"],
        "slot": chosen["slot"],
        "count": chosen["delta"].cast(pa.int64()),
        "real": pa.array([0.0] * chosen.num_rows),
    }
    return pa.table(columns).cast(SLOTS)
