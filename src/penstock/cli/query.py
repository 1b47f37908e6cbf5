"""`penstock query`: values of a metric, from the store."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from penstock.cli._arguments import at_least
from penstock.cli._table import table
from penstock.cli._times import bucket_text, time

if TYPE_CHECKING:
    from penstock.store.contract import Granularity, MetricStore, SeriesRow

__all__ = ["add_parser"]

_EXAMPLES = """\
examples:
  penstock query --store metrics.db                          all metrics that have a definition
  penstock query --store metrics.db service_cpm --since 1h
  penstock query --store metrics.db endpoint_percentile --entity 'shop*' 'GET *' --granularity hour
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "query",
        help="show values of a metric",
        description="Show values of a metric; without a metric, show which there are.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("metric", nargs="?", metavar="METRIC")
    add_reading_options(parser, limit=50)
    parser.add_argument(
        "--granularity",
        choices=("minute", "hour", "day"),
        default="minute",
        help="default: %(default)s",
    )
    parser.set_defaults(run=_run)


def add_reading_options(parser: argparse.ArgumentParser, *, limit: int) -> None:
    """Add what all commands that read a store have in common."""
    parser.add_argument("--store", required=True, metavar="URL", help="a file or postgresql://…")
    parser.add_argument(
        "--entity",
        nargs="+",
        default=[],
        metavar="PATTERN",
        help="names of the entity's parts, with * and ?: a service, or a service and its endpoint",
    )
    parser.add_argument("--since", type=time, metavar="TIME", help="30m, 2h, 7d or ISO 8601 (UTC)")
    parser.add_argument("--until", type=time, metavar="TIME", help="as --since")
    parser.add_argument(
        "--limit",
        type=at_least(1),
        default=limit,
        metavar="N",
        help="rows at most (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="a JSON array instead of a table")


def window(options: argparse.Namespace, minutes: int) -> dict[str, int]:
    """Return the buckets that --since and --until ask for."""
    given = {"since": options.since, "until": options.until}
    return {
        name: int(seconds // (60 * minutes)) + (1 if name == "until" else 0)
        for name, seconds in given.items()
        if seconds is not None
    }


def _run(options: argparse.Namespace) -> int:
    from penstock.store import open_store

    store = open_store(options.store)
    try:
        if options.metric is None:
            print(_catalogue(store, as_json=options.json))
        else:
            print(_values(store, options))
    finally:
        store.close()
    return 0


def _catalogue(store: MetricStore, *, as_json: bool) -> str:
    known = sorted(store.catalogue().values(), key=lambda metric: metric.name)
    if as_json:
        return json.dumps(
            [{"name": m.name, "scope": m.scope, "function": m.function} for m in known]
        )
    if not known:
        return "the store has no metrics yet; fill it with: penstock aggregate"
    return table(("METRIC", "SCOPE", "FUNCTION"), [(m.name, m.scope, m.function) for m in known])


def _values(store: MetricStore, options: argparse.Namespace) -> str:
    from penstock.metrics.functions import FUNCTIONS
    from penstock.store.contract import Granularity, SeriesQuery

    granularity = Granularity(options.granularity)
    rows = store.series(
        SeriesQuery(
            metric=options.metric,
            granularity=granularity,
            entity=options.entity,
            limit=options.limit,
            **window(options, granularity.minutes),
        )
    )
    function = FUNCTIONS[store.catalogue()[options.metric].function]
    values = [(row, function.value(row.state, granularity.minutes)) for row in rows]
    if options.json:
        return json.dumps([_as_json(row, value, granularity) for row, value in values])
    if not values:
        return f"{options.metric} has no values there"
    return _as_table(values, granularity)


def _as_json(row: SeriesRow, value: object, granularity: Granularity) -> dict[str, Any]:
    return {
        "time": bucket_text(row.bucket, granularity.minutes),
        "entity": list(row.entity),
        "value": value,
    }


def _as_table(values: list[tuple[SeriesRow, Any]], granularity: Granularity) -> str:
    labels = list(dict.fromkeys(label for _, value in values for label in _parts(value)))
    rows = [
        (
            bucket_text(row.bucket, granularity.minutes),
            " / ".join(row.entity),
            *(_parts(value).get(label, "") for label in labels),
        )
        for row, value in values
    ]
    return table(("TIME (UTC)", "ENTITY", *(label.upper() for label in labels)), rows)


def _parts(value: Any) -> dict[str, Any]:  # noqa: ANN401 # a number or numbers by label
    return value if isinstance(value, dict) else {"value": value}
