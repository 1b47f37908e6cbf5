"""Minutes to hours and days, and slots to the JSON texts that the store adds up."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.columns import Texts
from penstock.aggregation.partials import FACTS, KEY, combine_facts, combine_slots

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.store.contract import Granularity

__all__ = ["MERGED", "granular"]

MERGED = pa.schema([*FACTS, ("slots", pa.string()), ("sums", pa.string())])


def granular(
    facts: pa.Table,
    slots: pa.Table,
    granularity: Granularity,
    oldest: int,
    summed: Collection[int] = (),
) -> pa.Table:
    """Return the states of one granularity, a row per key, as the store merges them (MERGED).

    *facts* and *slots* are by minute; those before the minute *oldest* are left out. *summed* are
    the metrics that add up by label as well.
    """
    facts, slots = (table.filter(pc.field("bucket") >= oldest) for table in (facts, slots))
    if granularity.minutes > 1:
        facts = combine_facts(_coarser(facts, granularity.minutes))
        slots = combine_slots(_coarser(slots, granularity.minutes))
    texts = _texts(slots, "slots", "count")
    sums = slots.filter(pc.is_in(slots["metric"], pa.array(list(summed), pa.int64())))
    merged = facts.join(texts, list(KEY), join_type="left outer").join(
        _texts(sums, "sums", "real"), list(KEY), join_type="left outer"
    )
    return merged.select(MERGED.names).cast(MERGED).sort_by([(name, "ascending") for name in KEY])


def _coarser(table: pa.Table, minutes: int) -> pa.Table:
    # Floor division also before 1970, where Arrow's would round towards zero.
    bucket = pa.array((table["bucket"].to_numpy() // minutes).astype(np.int32))
    return table.set_column(table.schema.get_field_index("bucket"), "bucket", bucket)


def _texts(slots: pa.Table, name: str, value: str) -> pa.Table:
    """Return one JSON object per key, from slot to *value*, under the column *name*."""
    schema = pa.schema([*(FACTS.field(key) for key in KEY), (name, pa.string())])
    if not slots.num_rows:
        return schema.empty_table()
    ordered = slots.sort_by([(key, "ascending") for key in (*KEY, "slot")]).combine_chunks()
    quoted = Texts.of(ordered["slot"].combine_chunks())
    # An empty label has no code; it is written like any other.
    names = pa.array([*(json.dumps(text) for text in quoted.values), '""'])
    labels = names.take(pa.array(np.where(quoted.codes < 0, len(names) - 1, quoted.codes)))
    entries = pc.binary_join_element_wise(labels, _numbers(ordered[value]), ":")
    starts = _starts(ordered)
    offsets = pa.array(np.append(starts, ordered.num_rows).astype(np.int32))
    lists = pa.ListArray.from_arrays(offsets, entries)
    objects = pc.binary_join_element_wise("{", pc.binary_join(lists, ","), "}", "")
    keys = ordered.select(list(KEY)).take(pa.array(starts))
    return keys.append_column(name, objects).cast(schema)


def _numbers(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())


def _starts(ordered: pa.Table) -> np.ndarray:
    """Return the first row of each key."""
    changed = np.ones(ordered.num_rows, dtype=np.bool_)
    changed[1:] = False
    for name in KEY:
        column = ordered[name].to_numpy()
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)
