"""`penstock aggregate`: landed telemetry to metrics in a store, with Spark."""

from __future__ import annotations

import argparse
import json
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cli._arguments import Repeated, at_least, pairs, positive
from penstock.cli._logging import add_logging_options, set_up_logging
from penstock.cli._part import follow_parent, is_part
from penstock.errors import ConfigError, DependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cli._progress import AggregationProgress
    from penstock.metrics.definitions import Metric
    from penstock.spark.aggregation import Aggregation, AggregationConfig
    from penstock.spark.figures import JobFigures

__all__ = ["add_options", "add_parser"]

_EXAMPLES = """\
examples:
  penstock generate --landing landing --spans 1000000
  penstock aggregate --once --landing landing --store metrics.db
  penstock aggregate --landing landing --store postgresql://penstock@db/metrics \\
      --rules rules.oal --master spark://host:7077

Stops at Ctrl-C or SIGTERM when the batch under way is merged, and goes on from there next time.
Exit codes: 0 done or stopped, 1 an error (the message says which), 2 wrong usage.
"""
_METRICS_PORT = 9464  # as part of `penstock up`


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "aggregate",
        help="aggregate landed telemetry into a store",
        description="Aggregate landed telemetry into a store, as one Spark streaming query.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--landing", type=Path, required=True, metavar="DIR", help="landing folder")
    parser.add_argument(
        "--store",
        required=True,
        metavar="URL",
        help="a file (SQLite) or postgresql://user@host:port/database",
    )
    parser.add_argument(
        "--once", action="store_true", help="end when all that has landed is merged"
    )
    add_options(parser)
    add_logging_options(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress, only the summary")
    parser.add_argument("--json", action="store_true", help="the summary as one JSON object")
    parser.set_defaults(run=_run)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what is the aggregation's own."""
    parser.add_argument(
        "--rules",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="metric definitions (OAL); default: those that come with penstock",
    )
    _add_spark_options(parser.add_argument_group("where it runs"))
    _add_limits(parser.add_argument_group("what it keeps, and thresholds"))
    _add_recovery(parser.add_argument_group("after a change or a loss"))


def _add_spark_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--master", default="local[*]", help="Spark master (default: %(default)s)")
    group.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="default: .checkpoint in the landing folder"
    )
    group.add_argument(
        "--interval",
        type=positive,
        default=5.0,
        metavar="S",
        help="seconds between looks into the landing folder (default: %(default)g)",
    )
    group.add_argument("--driver-memory", default="1g", metavar="SIZE", help="default: %(default)s")
    group.add_argument(
        "--max-bytes",
        type=at_least(1),
        default=96 << 20,
        metavar="N",
        help="bytes of landed files per micro-batch (default: %(default)s)",
    )
    group.add_argument(
        "--conf", action=Repeated, default=[], metavar="NAME=VALUE", help="any setting of Spark"
    )
    group.add_argument(
        "--patience",
        type=positive,
        default=300.0,
        metavar="S",
        help="seconds to wait for a store that cannot be reached (default: %(default)g)",
    )
    group.add_argument(
        "--metrics-port",
        type=at_least(0),
        metavar="N",
        help="serve the job's own figures on 127.0.0.1:N/metrics (default: 9464 as part of "
        "`penstock up`, otherwise none)",
    )


def _add_limits(group: argparse._ArgumentGroup) -> None:
    for name, days in (("minutes", 7), ("hours", 30), ("days", 365), ("records", 3)):
        group.add_argument(
            f"--keep-{name}",
            type=at_least(1),
            default=days,
            metavar="DAYS",
            help=f"days to keep {name} (default: %(default)s)",
        )
    group.add_argument(
        "--keep-consumed",
        type=positive,
        default=1.0,
        metavar="DAYS",
        help="days to keep merged files (default: %(default)g)",
    )
    for name, what in (
        ("apdex", "Apdex thresholds by service"),
        ("slow-databases", "thresholds of slow statements by database system"),
        ("slow-caches", "thresholds of slow commands by cache system"),
    ):
        group.add_argument(
            f"--{name}", action=Repeated, default=[], metavar="NAME=MS", help=f"{what}, or default"
        )
    group.add_argument(
        "--max-entities",
        type=at_least(1),
        default=100_000,
        metavar="N",
        help="entities per scope; further ones count as '(other)' (default: %(default)s)",
    )


def _add_recovery(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--new-checkpoint",
        action="store_true",
        help="the checkpoint is lost: begin a new one; what is merged already is recognised",
    )
    group.add_argument(
        "--replace-changed",
        action="store_true",
        help="metrics that the rules define anew: delete their old values",
    )


def _run(options: argparse.Namespace) -> int:
    from penstock.cli._progress import AggregationProgress
    from penstock.land.folder import LandingFolder
    from penstock.spark.aggregation import Aggregation
    from penstock.spark.figures import JobFigures
    from penstock.store import open_store

    set_up_logging(options)
    follow_parent()
    metrics = _metrics(options.rules)
    config = _config(options)
    progress = AggregationProgress(config.landing, is_quiet=options.quiet)
    with ExitStack() as stack:
        store = open_store(options.store)
        stack.callback(store.close)
        stack.callback(progress.close)
        figures = JobFigures(store, LandingFolder(config.landing), progress)
        stack.callback(_serve(figures, options.metrics_port))
        aggregation = Aggregation(config, store, metrics, figures)
        _stop_on_signals(aggregation, progress)
        with suppress(_StoppedEarlyError), progress.starting():
            aggregation.run()
    summary = progress.summary()
    print(json.dumps(summary) if options.json else progress.text(), flush=True)
    return 0


class _StoppedEarlyError(BaseException):
    """The end was asked for before the job ran: there is no batch to wait for."""


def _stop_on_signals(aggregation: Aggregation, progress: AggregationProgress) -> None:
    def stop(*_: object) -> None:
        aggregation.stop()
        if progress.give_up_start():
            raise _StoppedEarlyError  # starting Spark takes long, and is for nothing now

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _serve(figures: JobFigures, port: int | None) -> Callable[[], None]:
    """Serve the figures if that is asked for, or usual; return what ends it."""
    if port is None and not is_part():
        return lambda: None
    try:
        from penstock.prometheus import FigureCollector, serve
    except ImportError as error:
        if port is None:
            return lambda: None
        raise DependencyError(f"--metrics-port: {error}") from error
    port = _METRICS_PORT if port is None else port
    try:
        return serve([FigureCollector(figures.figures)], "127.0.0.1", port)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on 127.0.0.1:{port} for /metrics: {error.strerror}; choose another "
            "port with --metrics-port"
        ) from error


def _metrics(rules: Sequence[Path] | None) -> Sequence[Metric]:
    from penstock.metrics import default_rules, load_rules

    return load_rules(rules) if rules else default_rules()


def _config(options: argparse.Namespace) -> AggregationConfig:
    from penstock.aggregation.settings import AggregationSettings
    from penstock.spark.aggregation import AggregationConfig
    from penstock.spark.job import JobSettings
    from penstock.spark.session import SessionSettings
    from penstock.store.contract import Retention

    thresholds = AggregationSettings()
    given: dict[str, Any] = {
        name: {**getattr(thresholds, name), **pairs(f"--{flag}", getattr(options, name), int)}
        for name, flag in (
            ("apdex", "apdex"),
            ("slow_databases", "slow-databases"),
            ("slow_caches", "slow-caches"),
        )
    }
    if not options.landing.is_dir():
        raise ConfigError(
            f"--landing {options.landing} is not a folder; create it, or fill it with: "
            f"penstock generate --landing {options.landing}"
        )
    return AggregationConfig(
        landing=options.landing,
        checkpoint=options.checkpoint or options.landing / ".checkpoint",
        once=options.once,
        interval=options.interval,
        max_bytes=options.max_bytes,
        new_checkpoint=options.new_checkpoint,
        replace_changed=options.replace_changed,
        job=JobSettings(
            aggregation=AggregationSettings(max_entities=options.max_entities, **given),
            retention=Retention(
                minute=options.keep_minutes,
                hour=options.keep_hours,
                day=options.keep_days,
                records=options.keep_records,
            ),
            patience=options.patience,
            keep_consumed=options.keep_consumed,
        ),
        session=SessionSettings(
            master=options.master,
            driver_memory=options.driver_memory,
            options=pairs("--conf", options.conf, str),
        ),
    )
