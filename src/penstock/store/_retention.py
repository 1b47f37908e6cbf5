"""Deleting what is past its retention, in pieces that do not keep the writer waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store._reads import catalogue
from penstock.store.contract import Granularity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.store._engine import Engine, Session
    from penstock.store.contract import Retention

__all__ = ["expire"]

_DAY = 86_400
_LEDGER_DAYS = 30  # longer than anybody lets a job stand still and then repeats its files
# A late reading needs the one before it, so readings outlive the records by a day.
_READING_DAYS = 1
_ROWS_AT_ONCE = 20_000
_BUCKETS_AT_ONCE = 60


def expire(engine: Engine, now: float, retention: Retention) -> Mapping[str, int]:
    """Delete what is past its retention at *now*; return the deleted rows by table."""
    with engine.reading() as session:
        metrics = [metric.metric for metric in catalogue(session).values()]
    deleted = {
        f"metric_{granularity}": _values(
            engine, granularity, metrics, retention.oldest(granularity, now)
        )
        for granularity in Granularity
    }
    records = now - retention.records * _DAY
    deleted["topn"] = _spans(engine, "topn", int(records // 60), _BUCKETS_AT_ONCE)
    readings = int(records - _READING_DAYS * _DAY) * 1_000_000_000
    deleted["reading"] = _spans(engine, "reading", readings, 600 * 1_000_000_000)
    for table in ("ledger", "landed_file"):
        with engine.writing() as session:
            session.rows("lease_lock")
            deleted[table] = session.run(f"expire_{table}", before=now - _LEDGER_DAYS * _DAY)
    return deleted


def _values(engine: Engine, granularity: Granularity, metrics: list[int], before: int) -> int:
    left = list(metrics)
    deleted = 0
    while left:
        with engine.writing() as session:
            session.rows("lease_lock")
            rows = 0
            while left and rows < _ROWS_AT_ONCE:
                oldest = _oldest(session, f"oldest_value.{granularity}", metric=left[-1])
                if oldest is None or oldest >= before:
                    left.pop()
                    continue
                until = min(before, oldest + _BUCKETS_AT_ONCE)
                rows += session.run(f"expire_values.{granularity}", metric=left[-1], before=until)
        deleted += rows
    return deleted


def _spans(engine: Engine, table: str, before: int, step: int) -> int:
    """Delete from *table* what lies before *before*, *step* at a time."""
    deleted = 0
    while True:
        with engine.writing() as session:
            session.rows("lease_lock")
            oldest = _oldest(session, f"oldest_{table}")
            if oldest is None or oldest >= before:
                return deleted
            deleted += session.run(f"expire_{table}", before=min(before, oldest + step))


def _oldest(session: Session, statement: str, **values: object) -> int | None:
    found: int | None = session.rows(statement, **values)[0][0]
    return found
