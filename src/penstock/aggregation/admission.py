"""What may enter the store: entities up to a cap per scope, and meters that keep their kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.partials import ENTITIES, combine_facts, combine_slots
from penstock.metrics.definitions import stable_id
from penstock.metrics.sources import METER, OTHER, SOURCES

if TYPE_CHECKING:
    from penstock.aggregation.partials import Partials
    from penstock.store.contract import MetricStore

__all__ = ["Admission"]

_METER_PARTS = 3
_KEYED = ("facts", "slots", "topn", "readings")


class Admission:
    """Remembers which entities and metrics the store has, so that it need not be asked each time.

    What a batch brings is remembered by :meth:`confirm`, after its commit.
    """

    def __init__(self, store: MetricStore, max_entities: int) -> None:
        self._store = store
        self._max_entities = max_entities
        self._known: dict[str, set[int]] = {}
        self._metrics = {known.name: known.metric for known in store.catalogue().values()}

    def admit(self, partials: Partials) -> tuple[Partials, dict[str, int]]:
        """Return what may enter; rows of further entities under ``(other)``. And what may not."""
        partials, clashing = self._without_clashes(partials)
        partials = self._within_caps(partials)
        return partials, {"name_taken": clashing} if clashing else {}

    def confirm(self, partials: Partials) -> None:
        """Remember what was committed."""
        for entity, scope in _columns(partials.entities, "entity", "scope"):
            self._ids(scope).add(entity)
        self._metrics |= dict(_columns(partials.meters, "name", "metric"))

    def _without_clashes(self, partials: Partials) -> tuple[Partials, int]:
        """Leave out points under a name that stands for something else already."""
        names = dict(self._metrics)
        clashing = []
        for metric, name in sorted(_columns(partials.meters, "metric", "name")):
            if names.setdefault(name, metric) != metric:
                clashing.append(metric)
        if not clashing:
            return partials, 0
        taken = pa.array(clashing, pa.int64())
        kept = {
            name: table.filter(pc.invert(pc.is_in(table["metric"], taken)))
            for name in ("facts", "slots", "readings", "meters")
            if (table := getattr(partials, name)).num_rows
        }
        lost = partials.facts.num_rows - kept.get("facts", partials.facts).num_rows
        lost += partials.readings.num_rows - kept.get("readings", partials.readings).num_rows
        return replace(partials, **kept), lost

    def _within_caps(self, partials: Partials) -> Partials:
        renamed: dict[int, int] = {}
        others: dict[int, tuple[str, tuple[str, ...]]] = {}
        seen: dict[str, set[int]] = {}
        for entity, scope in sorted(_columns(partials.entities, "entity", "scope")):
            if entity not in self._ids(scope):
                seen.setdefault(scope, set()).add(entity)
        for scope, fresh in seen.items():
            parts = (OTHER,) * _parts_of(scope)
            other = stable_id(scope, *parts)
            room = max(0, self._max_entities - len(self._ids(scope) - {other}))
            overflowing = sorted(fresh - {other})[room:]
            if overflowing:
                renamed |= dict.fromkeys(overflowing, other)
                others[other] = (scope, parts)
        return _renamed(partials, renamed, others) if renamed else partials

    def _ids(self, scope: str) -> set[int]:
        if scope not in self._known:
            self._known[scope] = set(self._store.entity_ids(scope))
        return self._known[scope]


def _parts_of(scope: str) -> int:
    return _METER_PARTS if scope == METER else len(SOURCES[scope].entity)


def _renamed(
    partials: Partials,
    renamed: dict[int, int],
    others: dict[int, tuple[str, tuple[str, ...]]],
) -> Partials:
    before = np.array(sorted(renamed), dtype=np.int64)
    after = np.array([renamed[entity] for entity in before.tolist()], dtype=np.int64)
    tables = {name: _with_entities(getattr(partials, name), before, after) for name in _KEYED}
    tables["facts"] = combine_facts(tables["facts"])
    tables["slots"] = combine_slots(tables["slots"])
    kept = pc.invert(pc.is_in(partials.entities["entity"], pa.array(before)))
    rows = [(other, scope, parts) for other, (scope, parts) in others.items()]
    columns = [
        pa.array(list(column), field.type)
        for column, field in zip(zip(*rows, strict=True), ENTITIES, strict=True)
    ]
    new = pa.Table.from_arrays(columns, schema=ENTITIES)
    tables["entities"] = pa.concat_tables([partials.entities.filter(kept), new])
    return replace(partials, **tables)


def _with_entities(table: pa.Table, before: np.ndarray, after: np.ndarray) -> pa.Table:
    entity = table["entity"].to_numpy()
    position = np.minimum(np.searchsorted(before, entity), len(before) - 1)
    renamed = np.where(before[position] == entity, after[position], entity)
    return table.set_column(table.schema.get_field_index("entity"), "entity", pa.array(renamed))


def _columns(table: pa.Table, *names: str) -> list[tuple[Any, Any]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))
