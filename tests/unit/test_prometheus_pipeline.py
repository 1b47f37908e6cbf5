"""What a Prometheus server sees of batchers and of the parts of the pipeline."""

from __future__ import annotations

import errno
import socket
import threading
import urllib.request
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.batcher import Batcher, BatchSettings, CompleteResult, Completion, ProcessResult
from penstock.figures import Figure
from penstock.prometheus import BatcherCollector, FigureCollector, exposition, serve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.registry import Collector

    from penstock.batcher import BatchFault

PATIENCE = 60.0


def series(collectors: Iterable[Collector]) -> dict[tuple[str, ...], float]:
    """Return the samples of a scrape, by name and the values of the labels."""
    text, _ = exposition(collectors)()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_batcher_is_scraped_while_it_works() -> None:
    """What waits, what is in the processor's hands, what has ended and how."""
    entered, gate = threading.Event(), threading.Event()
    faults: list[BatchFault] = []

    def process(items: list[str], complete: Completion) -> ProcessResult:
        entered.set()
        assert gate.wait(PATIENCE)
        complete(CompleteResult.ERROR if "bad" in items else CompleteResult.OK, None)
        return ProcessResult.OK

    def ended(context: object, result: CompleteResult, ll_result: object) -> None:
        del context, result, ll_result

    batcher: Batcher[str] = Batcher(
        process,
        BatchSettings(max_batch_size=1, min_batch_size=1),
        on_batch_faulted=faults.append,
        name="b",
    )
    batcher.open()
    batcher.enqueue("good", 1, ended)
    assert entered.wait(PATIENCE)
    batcher.enqueue("bad", 1, ended)
    during = series([BatcherCollector([batcher])])
    gate.set()
    batcher.close(PATIENCE, drain=True)
    after = series([BatcherCollector([batcher])])
    assert during["penstock_batcher_pending_batches", "b"] == 1
    assert during["penstock_batcher_queued", "b"] == 1
    assert during["penstock_batcher_queued_size", "b"] == 1
    assert during["penstock_batcher_accepted_total", "b"] == 2
    assert after["penstock_batcher_ok_total", "b"] == 1
    assert after["penstock_batcher_failed_total", "b"] == 1
    assert after["penstock_batcher_batches_total", "b"] == 2
    assert after["penstock_batcher_queued", "b"] == 0
    assert after["penstock_batcher_faulted", "b"] == 0
    causes = {
        key[1]: value for key, value in after.items() if key[0] == "penstock_batcher_sent_total"
    }
    assert sum(causes.values()) == 2


def test_batchers_are_told_apart_by_name() -> None:
    """One collector takes several."""
    batchers: list[Batcher[str]] = [
        Batcher(
            lambda _items, _complete: ProcessResult.OK,
            BatchSettings(),
            on_batch_faulted=lambda _fault: None,
            name=name,
        )
        for name in ("a", "b")
    ]
    found = series([BatcherCollector(batchers)])
    assert {key[1] for key in found if key[0] == "penstock_batcher_accepted_total"} == {"a", "b"}


def test_figures_become_counters_and_gauges() -> None:
    """A counter's name ends in _total; labels stand in their order."""
    figures = [
        Figure.counter("things", "Things", {("x", "1"): 2.0, ("y", "2"): 3.0}, "kind", "size"),
        Figure.gauge("level", "Level", 0.5),
        Figure.counter("nothing", "Nothing yet", {}, "kind"),
    ]
    text, content_type = exposition([FigureCollector(lambda: figures)])()
    assert content_type.startswith("text/plain")
    lines = text.decode().splitlines()
    assert 'penstock_things_total{kind="x",size="1"} 2.0' in lines
    assert 'penstock_things_total{kind="y",size="2"} 3.0' in lines
    assert "penstock_level 0.5" in lines
    assert "# TYPE penstock_nothing_total counter" in lines


def test_figures_are_asked_for_at_every_scrape() -> None:
    """Nothing is kept from one to the next, and nothing is asked before the first."""
    asked: list[int] = []

    def figures() -> list[Figure]:
        asked.append(len(asked))
        return [Figure.gauge("asked", "How often", len(asked))]

    scrape = exposition([FigureCollector(figures)])
    assert asked == []
    assert b"penstock_asked 1.0" in scrape()[0]
    assert b"penstock_asked 2.0" in scrape()[0]


def test_label_values_with_any_text_can_be_parsed() -> None:
    """Quotes, backslashes and line ends are escaped."""
    odd = 'a "b" \\ c\nd'
    figure = Figure.gauge("odd", "Odd", {(odd,): 1.0}, "text")
    assert series([FigureCollector(lambda: [figure])]) == {("penstock_odd", odd): 1.0}


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_served_scrape_ends_when_it_is_told_to() -> None:
    """Its thread is gone, and the port is free again."""
    port = free_port()
    collector = FigureCollector(lambda: [Figure.gauge("up", "Up", 1)])
    stop = serve([collector], "127.0.0.1", port)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            assert b"penstock_up 1.0" in answer.read()
    finally:
        stop()
    serve([collector], "127.0.0.1", port)()


def test_a_port_in_use_is_an_error() -> None:
    """The caller says which option to change."""
    port = free_port()
    stop = serve([], "127.0.0.1", port)
    try:
        with pytest.raises(OSError, match="in use") as raised:
            serve([], "127.0.0.1", port)
        assert raised.value.errno == errno.EADDRINUSE
    finally:
        stop()
