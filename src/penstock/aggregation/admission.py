"""What may enter the store: entities up to a cap per scope, and meters that keep their kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.aggregation.partials import ENTITIES, combine_facts, combine_slots
from penstock.metrics.definitions import stable_id
from penstock.metrics.sources import METER, OTHER, SOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.aggregation.partials import Partials
    from penstock.store.contract import MetricStore

__all__ = ["Admission", "Admitted"]

_METER_PARTS = 3


@dataclass(frozen=True, slots=True)
class Admitted:
    """What may enter of a batch, and what may not, by cause.

    Readings are still under their own entities: each series has to be compared with itself. What
    they turn out to add belongs to the entities that *others* names for them.
    """

    partials: Partials
    left_out: Mapping[str, int]
    others: Mapping[int, int]

    def placed(self, deltas: pa.Table) -> pa.Table:
        """Return increases of readings under the entities that may enter."""
        return _replaced(deltas, "entity", self.others)


class Admission:
    """Remembers which entities and metrics the store has, so that it need not be asked each time.

    What a batch brings is remembered by :meth:`confirm`, after its commit.
    """

    def __init__(self, store: MetricStore, max_entities: int) -> None:
        self._store = store
        self._max_entities = max_entities
        self.forget()

    def forget(self) -> None:
        """Ask the store anew: what has become of the last batch is not known."""
        self._known: dict[str, set[int]] = {}
        self._kinds: dict[str, tuple[str, str]] | None = None

    def admit(self, partials: Partials) -> Admitted:
        """Return what may enter; rows of entities beyond the cap under ``(other)``."""
        partials, clashing = self._without_clashes(partials)
        partials, others = self._within_caps(partials)
        return Admitted(partials, {"name_taken": clashing} if clashing else {}, others)

    def confirm(self, partials: Partials) -> None:
        """Remember what was committed."""
        for entity, scope in _rows(partials.entities, "entity", "scope"):
            self._ids(scope).add(entity)
        for name, function in _rows(partials.meters, "name", "function"):
            self._metrics()[name] = (METER, function)

    def _without_clashes(self, partials: Partials) -> tuple[Partials, int]:
        """Leave out points under a name that stands for something else; the others get its id."""
        kinds = dict(self._metrics())
        admitted: dict[int, int] = {}
        clashing = []
        for name, function, metric in sorted(_rows(partials.meters, "name", "function", "metric")):
            if kinds.setdefault(name, (METER, function)) == (METER, function):
                admitted[metric] = stable_id("metric", name)
            else:
                clashing.append(metric)
        taken = pa.array(clashing, pa.int64())
        tables = {
            name: _replaced(_without(getattr(partials, name), taken), "metric", admitted)
            for name in ("facts", "slots", "readings", "meters")
        }
        counted = partials.meter_rows.filter(pc.is_in(partials.meter_rows["metric"], taken))
        return replace(partials, **tables), pc.sum(counted["rows"]).as_py() or 0

    def _within_caps(self, partials: Partials) -> tuple[Partials, Mapping[int, int]]:
        renamed: dict[int, int] = {}
        others: dict[int, tuple[str, tuple[str, ...]]] = {}
        seen: dict[str, set[int]] = {}
        for entity, scope in _rows(partials.entities, "entity", "scope"):
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
        return (_renamed(partials, renamed, others) if renamed else partials), renamed

    def _ids(self, scope: str) -> set[int]:
        if scope not in self._known:
            self._known[scope] = set(self._store.entity_ids(scope))
        return self._known[scope]

    def _metrics(self) -> dict[str, tuple[str, str]]:
        """Return scope and function of each metric by name."""
        if self._kinds is None:
            known = self._store.catalogue().values()
            self._kinds = {metric.name: (metric.scope, metric.function) for metric in known}
        return self._kinds


def _parts_of(scope: str) -> int:
    return _METER_PARTS if scope == METER else len(SOURCES[scope].entity)


def _renamed(
    partials: Partials,
    renamed: Mapping[int, int],
    others: Mapping[int, tuple[str, tuple[str, ...]]],
) -> Partials:
    tables = {
        name: _replaced(getattr(partials, name), "entity", renamed)
        for name in ("facts", "slots", "topn")
    }
    tables["facts"] = combine_facts(tables["facts"])
    tables["slots"] = combine_slots(tables["slots"])
    rows = [(other, scope, parts) for other, (scope, parts) in others.items()]
    columns = [
        pa.array(list(column), field.type)
        for column, field in zip(zip(*rows, strict=True), ENTITIES, strict=True)
    ]
    new = pa.Table.from_arrays(columns, schema=ENTITIES)
    gone = pc.is_in(partials.entities["entity"], pa.array(list(renamed), pa.int64()))
    tables["entities"] = pa.concat_tables([partials.entities.filter(pc.invert(gone)), new])
    return replace(partials, **tables)


def _without(table: pa.Table, metrics: pa.Array) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table["metric"], metrics))) if len(metrics) else table


def _replaced(table: pa.Table, column: str, ids: Mapping[int, int]) -> pa.Table:
    """Return *table* with other ids in *column*; those that are not in *ids* stay."""
    if not ids or not table.num_rows:
        return table
    before = np.array(sorted(ids), dtype=np.int64)
    after = np.array([ids[one] for one in before.tolist()], dtype=np.int64)
    found = table[column].to_numpy()
    position = np.minimum(np.searchsorted(before, found), len(before) - 1)
    replaced = np.where(before[position] == found, after[position], found)
    return table.set_column(table.schema.get_field_index(column), column, pa.array(replaced))


def _rows(table: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))
