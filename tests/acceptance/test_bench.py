"""`penstock bench`: every bench runs, and reports what it promises. No figure is judged here."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.bench.registry import BENCHES

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("queue", "rebalance", "batcher", "idle", "receive")

FIGURES = {
    "queue": {
        "penstock_produce_items_per_s",
        "queue_queue_items_per_s",
        "queue_simplequeue_unbounded_items_per_s",
        "bare_call_one_thread_items_per_s",
        "cpu_per_item_100_types_ns",
        "cpu_per_item_500_types_ns",
        "cpu_per_item_2000_types_ns",
    },
    "rebalance": {
        "static_ratio_from_weights",
        "static_ratio_measured",
        "rebalanced_ratio",
        "static_items_per_s",
        "rebalanced_items_per_s",
        "gain_percent",
        "ceiling_of_the_gain_percent",
        "ratio_in_each_interval",
        "items_per_s_in_each_interval",
    },
    "batcher": {
        "max_batch_items",
        "max_wait_ms",
        "version_of_async_batcher",
        "version_of_batched",
        "penstock_submit_items_per_s",
        "queue_thread_loop_items_per_s",
        "batched_threads_items_per_s",
        "penstock_blocking_call_items_per_s",
        "queue_thread_loop_blocking_call_items_per_s",
        "batched_threads_blocking_call_items_per_s",
        "penstock_asubmit_items_per_s",
        "batched_asyncio_items_per_s",
        "async_batcher_items_per_s",
        "memory_per_queued_item_penstock_enqueue_bytes",
        "memory_per_queued_item_penstock_submit_and_its_future_bytes",
        "memory_per_queued_item_queue_queue_and_a_future_bytes",
    },
    "idle": {
        "idle_cpu_percent_of_a_core",
        "idle_cpu_percent_of_a_core_with_on_idle",
        "produce_to_consume_median_ms",
        "produce_to_consume_p99_ms",
        "memory_of_452_partitions_of_20000_slots_mb",
        "drain_threads_of_all_queues",
    },
    "receive": {
        "grpc_durable_spans_per_second_2_clients",
        "grpc_noop_spans_per_second_2_clients",
        "http_durable_spans_per_second_2_clients",
        "http_noop_spans_per_second_2_clients",
        "decode_native_spans_per_second",
        "decode_plain_spans_per_second",
    },
}
RATIOS = {
    "queue": {
        "vs_queue_queue",
        "vs_queue_simplequeue",
        "vs_bare_call",
        "produce_many_vs_produce_1_type",
        "produce_many_vs_produce_10_types",
        "produce_many_vs_produce_100_types_weighted",
        "cpu_per_item_2000_types_vs_100_types",
    },
    "rebalance": {"vs_static_placement", "gain_vs_ceiling"},
    "batcher": {
        "vs_queue_thread_loop",
        "vs_batched_threads",
        "vs_queue_thread_loop_blocking_call",
        "vs_batched_threads_blocking_call",
        "vs_batched_asyncio",
        "vs_batched_asyncio_plain_function",
        "vs_async_batcher",
        "vs_async_batcher_plain_function",
    },
    "idle": set[str](),
    "receive": {
        "grpc_durable_vs_noop_2_clients",
        "http_durable_vs_noop_2_clients",
        "decode_native_vs_plain",
    },
}
GOALS = {
    "queue": {
        "vs_queue_queue": ">= 4",
        "produce_many_vs_produce_1_type": ">= 5",
        "produce_many_vs_produce_10_types": ">= 2",
        "cpu_per_item_2000_types_vs_100_types": "<= 1.5",
    },
    "rebalance": {
        "rebalanced_ratio": "<= 1.05",
        "gain_vs_ceiling": ">= 0.9",
        "highest_ratio_of_an_interval": "<= 1.15",
        "throughput_spread": "<= 0.1",
    },
    "batcher": {
        "vs_queue_thread_loop": "> 1",
        "vs_batched_threads": "> 1",
        "vs_batched_threads_blocking_call": "> 1",
        "vs_batched_asyncio": "> 1",
        "vs_batched_asyncio_plain_function": "> 1",
        "vs_async_batcher": "> 1",
        "vs_async_batcher_plain_function": "> 1",
    },
    "idle": {
        "idle_cpu_percent_of_a_core": "< 0.5",
        "produce_to_consume_median_ms": "< 2",
        "memory_of_452_partitions_of_20000_slots_mb": "< 1",
    },
    "receive": {
        "durable beside no disk, grpc, 2 clients": ">= 0.5",
        "durable beside no disk, http, 2 clients": ">= 0.5",
        "decoding beside a loop in Python": ">= 3",
    },
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter to its end."""
    return subprocess.run(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@cache
def quick(name: str) -> subprocess.CompletedProcess[str]:
    """Run a bench once for all tests that look at it."""
    return run("-m", "penstock.cli.main", "bench", name, "--quick", "--json")


def found(name: str) -> dict[str, Any]:
    """Return the object that the bench printed."""
    parsed: dict[str, Any] = json.loads(quick(name).stdout)
    return parsed


def test_every_bench_is_looked_at_here() -> None:
    """The tables above are complete."""
    assert set(NAMES) <= set(BENCHES)
    assert set(FIGURES) == set(RATIOS) == set(GOALS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_json_is_one_object_with_the_promised_keys(name: str) -> None:
    """Programs read one line from stdout; stderr stays empty where nobody looks at it."""
    assert quick(name).stderr == ""
    assert quick(name).stdout.count("\n") == 1
    assert list(found(name)) == ["bench", "machine", "commit", "figures", "ratios", "goals"]
    assert found(name)["bench"] == name


@pytest.mark.parametrize("name", NAMES)
def test_the_machine_is_described(name: str) -> None:
    """A figure means nothing without the machine that it comes from."""
    machine = found(name)["machine"]
    assert set(machine) == {"cpu", "cores", "python", "platform", "load_average"}
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert all(machine[key] for key in ("cpu", "python", "platform"))


@pytest.mark.parametrize("name", NAMES)
def test_figures_and_ratios_are_the_promised_ones(name: str) -> None:
    """Whoever follows a figure over time finds it under the same name."""
    assert FIGURES[name] <= set(found(name)["figures"])
    assert RATIOS[name] <= set(found(name)["ratios"])
    assert all(isinstance(ratio, int | float) for ratio in found(name)["ratios"].values())


@pytest.mark.parametrize("name", NAMES)
def test_goals_are_listed_and_set_the_exit_code(name: str) -> None:
    """Each goal says what was asked and whether it was met; one that was missed exits with 1."""
    goals = found(name)["goals"]
    assert {goal["name"]: goal["goal"] for goal in goals} == GOALS[name]
    assert all(set(goal) == {"name", "goal", "value", "met"} for goal in goals)
    assert quick(name).returncode == (0 if all(goal["met"] for goal in goals) else 1)


def test_ten_intervals_are_reported_one_by_one() -> None:
    """Whether rebalancing comes to rest is seen in the single intervals."""
    figures = found("rebalance")["figures"]
    assert len(figures["ratio_in_each_interval"]) == 10
    assert len(figures["items_per_s_in_each_interval"]) == 10


def test_the_skew_of_the_rebalance_bench_is_real() -> None:
    """Without a skew of at least 1.3 there would be nothing to rebalance."""
    assert found("rebalance")["figures"]["static_ratio_from_weights"] >= 1.3


WITHOUT_PEERS = """
import sys
sys.modules["batched"] = sys.modules["async_batcher"] = None
sys.argv = ["penstock", "bench", "batcher", "--quick", "--json"]
from penstock.cli.main import main
sys.exit(main())
"""


def test_the_batcher_bench_runs_without_its_peers() -> None:
    """It compares with the standard library then, and says what is missing and how to get it."""
    done = run("-c", WITHOUT_PEERS)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    figures = found["figures"]
    assert figures["version_of_batched"] == figures["version_of_async_batcher"] == "not installed"
    assert "async-batcher and batched" in figures["peers_left_out"]
    assert "--group bench" in figures["peers_left_out"]
    assert set(found["ratios"]) == {"vs_queue_thread_loop", "vs_queue_thread_loop_blocking_call"}
    assert [goal["name"] for goal in found["goals"]] == ["vs_queue_thread_loop"]


def test_without_json_it_prints_a_table() -> None:
    """People get one line per figure, and the goals with a verdict."""
    done = run("-m", "penstock.cli.main", "bench", "idle", "--quick")
    assert done.returncode in (0, 1)
    assert done.stdout.startswith("penstock bench idle")
    for name in FIGURES["idle"] | set(GOALS["idle"]) | {"figures", "goals"}:
        assert name in done.stdout


def test_results_are_recorded_with_date_and_command(tmp_path: Path) -> None:
    """A result that is kept says when, where and how it came about."""
    script = str(ROOT / "benchmarks" / "record.py")
    done = run(script, "idle", "--quick", "--into", str(tmp_path))
    assert done.returncode in (0, 1), done.stderr
    kept = json.loads((tmp_path / "idle.json").read_text(encoding="utf-8"))
    assert {"date", "command", "machine", "commit", "figures", "goals"} <= set(kept)
    assert kept["command"] == "penstock bench idle --json --quick"


def test_recording_an_unknown_bench_is_wrong_usage() -> None:
    """Nothing is measured before the names are known to be right."""
    done = run(str(ROOT / "benchmarks" / "record.py"), "idle", "no-such-bench")
    assert done.returncode == 2
    assert "no-such-bench" in done.stderr
