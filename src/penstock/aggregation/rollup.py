"""Minutes to hours and days, and slots to the JSON texts that the store adds up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.columns import Texts
from penstock.aggregation.partials import (
    FACTS,
    KEY,
    KeyGroups,
    combine_facts,
    combine_slots,
)
from penstock.store.contract import Granularity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from penstock.aggregation.aggregator import Horizon

__all__ = ["MERGED", "granular"]

MERGED = pa.schema([*FACTS, ("slots", pa.string()), ("sums", pa.string())])


def granular(
    facts: pa.Table, slots: pa.Table, horizon: Horizon, summed: Collection[int] = ()
) -> Iterator[tuple[Granularity, pa.Table]]:
    """Yield the states of each granularity, a row per key, as the store merges them (MERGED).

    *facts* and *slots* are by minute; what a granularity no longer takes is left out of it.
    *summed* are the metrics that add up by label as well.
    """
    minutes = 1
    for granularity in Granularity:
        factor = granularity.minutes // minutes
        if factor > 1:
            # From the next finer one, which has far fewer rows than the minutes.
            facts = combine_facts(_coarser(facts, factor))
            slots = combine_slots(_coarser(slots, factor))
        minutes = granularity.minutes
        oldest = pc.field("bucket") >= horizon.oldest(granularity) // minutes
        yield granularity, _merged(facts.filter(oldest), slots.filter(oldest), summed)


def _merged(facts: pa.Table, slots: pa.Table, summed: Collection[int]) -> pa.Table:
    sums = slots.filter(pc.is_in(slots["metric"], pa.array(list(summed), pa.int64())))
    merged = _joined(_joined(facts, _texts(slots, "slots", "count")), _texts(sums, "sums", "real"))
    order = np.lexsort([merged[name].to_numpy() for name in reversed(KEY)])
    return merged.cast(MERGED).take(pa.array(order))


def _joined(facts: pa.Table, texts: pa.Table) -> pa.Table:
    """Return *facts* with the last column of *texts*, by key; null where there is none."""
    both = pa.concat_tables([table.select(list(KEY)) for table in (facts, texts)])
    number = KeyGroups.of(both, KEY).number
    position = np.full(len(number), -1)
    position[number[facts.num_rows :]] = np.arange(texts.num_rows)
    found = position[number[: facts.num_rows]]
    name = texts.column_names[-1]
    return facts.append_column(name, texts[name].take(pa.array(found, mask=found < 0)))


def _coarser(table: pa.Table, minutes: int) -> pa.Table:
    # Floor division also before 1970, where Arrow's would round towards zero.
    bucket = pa.array((table["bucket"].to_numpy() // minutes).astype(np.int32))
    return table.set_column(table.schema.get_field_index("bucket"), "bucket", bucket)


def _texts(slots: pa.Table, name: str, value: str) -> pa.Table:
    """Return one JSON object per key, from slot to *value*, under the column *name*."""
    schema = pa.schema([*(FACTS.field(key) for key in KEY), (name, pa.string())])
    if not slots.num_rows:
        return schema.empty_table()
    groups = KeyGroups.of(slots, KEY)
    order = np.argsort(groups.number, kind="stable")
    ordered = slots.select(["slot", value]).take(pa.array(order)).combine_chunks()
    quoted = Texts.of(ordered["slot"].combine_chunks())
    # An empty label has no code; it is written like any other.
    names = pa.array([*(json.dumps(text) for text in quoted.values), '""'])
    labels = names.take(pa.array(np.where(quoted.codes < 0, len(names) - 1, quoted.codes)))
    entries = pc.binary_join_element_wise(labels, _numbers(ordered[value]), ":")
    sizes = np.bincount(groups.number, minlength=groups.size)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, entries)
    objects = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    return pa.table({**groups.keys(), name: objects}, schema=schema)


def _numbers(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())
