"""Reading a whole store back, from a store that is a dictionary."""

import math
from collections.abc import Mapping, Sequence

from penstock.metrics.functions import State
from penstock.store.contract import (
    Catalogued,
    Granularity,
    SeriesQuery,
    SeriesRow,
    TopQuery,
    TopRow,
)
from tests.oracle.meters import Counter, Distribution, Gauge
from tests.oracle.reading import read_store, read_top

SHOP = ("shop",)


class Shelf:
    """A store with the same rows in every granularity, one metric for each function."""

    def __init__(self, states: Mapping[str, State], listed: Sequence[TopRow] = ()) -> None:
        self._states = states
        self._listed = listed

    def catalogue(self) -> Mapping[str, Catalogued]:
        """Return a metric for each function, with the function's name and an `a_`."""
        return {
            f"a_{function}": Catalogued(n, f"a_{function}", "Service", function, "")
            for n, function in enumerate(self._states)
        }

    def series(self, query: SeriesQuery) -> Sequence[SeriesRow]:
        """Return the only row; its bucket tells the granularity."""
        state = self._states[query.metric.removeprefix("a_")]
        return [SeriesRow(SHOP, query.granularity.minutes, state)][: query.limit]

    def top(self, query: TopQuery) -> Sequence[TopRow]:
        """Return the statements, of one kind only."""
        return list(self._listed[: query.limit]) if query.kind == "cache_read" else []


def test_all_values_of_all_granularities_are_read() -> None:
    """The function makes the value, given the minutes of the bucket."""
    shelf = Shelf({"cpm": State(count=120), "longAvg": State(count=2, total=5)})
    assert read_store(shelf) == {
        ("a_cpm", "minute", SHOP, 1): 120,
        ("a_cpm", "hour", SHOP, 60): 2,
        ("a_cpm", "day", SHOP, 1440): 0,
        **{("a_longAvg", g.value, SHOP, g.minutes): 2 for g in Granularity},
    }


def test_meters_bring_their_other_figures() -> None:
    """So that those can be compared too."""
    shelf = Shelf(
        {
            "counter": State(count=2, real=2.5),
            "gauge": State(count=2, real=3.0, low=1.0, high=2.0, last=1.0, last_at=5),
            "distribution": State(count=3, real=9.0, slots={"5": 1, "inf": 2}),
        }
    )
    found = read_store(shelf)
    counter = found["a_counter", "minute", SHOP, 1]
    gauge = found["a_gauge", "minute", SHOP, 1]
    distribution = found["a_distribution", "minute", SHOP, 1]
    assert isinstance(counter, Counter)
    assert isinstance(gauge, Gauge)
    assert isinstance(distribution, Distribution)
    assert counter == 2.5
    assert (gauge, gauge.count, gauge.sum, gauge.low, gauge.high) == (1.0, 2, 3.0, 1.0, 2.0)
    assert distribution == {5.0: 1, math.inf: 2}
    assert (distribution.count, distribution.sum, distribution.low) == (3, 9.0, None)


def test_top_lists_are_read_in_the_order_of_the_store() -> None:
    """A list that the store gives in the wrong order must not be put right on the way."""
    listed = [
        TopRow(SHOP, 7, 20, "GET b", "t1", "s2"),
        TopRow(("web",), 7, 20, "GET c", "t1", "s3"),
        TopRow(SHOP, 7, 30, "GET a", "t1", "s1"),
        TopRow(SHOP, 8, 10, "GET d", "t1", "s4"),
    ]
    assert read_top(Shelf({}, listed)) == {
        ("cache_read", SHOP, 7): [(20, "s2", "t1", "GET b"), (30, "s1", "t1", "GET a")],
        ("cache_read", ("web",), 7): [(20, "s3", "t1", "GET c")],
        ("cache_read", SHOP, 8): [(10, "s4", "t1", "GET d")],
    }
