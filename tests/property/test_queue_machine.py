"""Whatever is done to a queue, in whatever order: nothing is lost, doubled or overtaken.

Hypothesis chooses what happens and which of the ready tasks runs next. To look deeper than every
run of the tests does, set PENSTOCK_EXAMPLES to a multiple.
"""

import logging
import os
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock import BufferStrategy, DrainBalancer, PartitionPolicy
from tests.property.world import INTERVAL, MAX_IDLE, MIN_IDLE, Rotation, Setup, World

PROFILE = settings(
    max_examples=30 * int(os.environ.get("PENSTOCK_EXAMPLES", "1")),
    stateful_step_count=60,
    deadline=None,
    derandomize="PENSTOCK_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)

ACTIONS = (
    *("raise", "produce", "insist", "produce_many", "add", "remove", "come_back"),
    *("step", "step", "rebalance", "dwell"),
)
NUMBERS = st.integers(0, 6)
BALANCERS = (Rotation(), DrainBalancer.throughput_weighted(), None)


class QueueMachine(RuleBasedStateMachine):
    """Does things to a queue. Its subclasses say to which kind of queue."""

    strategy: BufferStrategy
    selector: str
    consumer = False
    world: World

    @initialize(
        threads=st.sampled_from((2, 3, 1)),
        factor=st.integers(1, 4),
        grows=st.booleans(),
        balancer=st.sampled_from(BALANCERS),
        buffer_size=st.sampled_from((1, 3, 7)),
        handlers=st.lists(NUMBERS, min_size=5, max_size=7),
    )
    def make(
        self,
        threads: int,
        factor: int,
        *,
        grows: bool,
        balancer: DrainBalancer | None,
        buffer_size: int,
        handlers: list[int],
    ) -> None:
        """Start with a queue of some shape."""
        grows = grows or self.selector == "type_hash"
        policy = PartitionPolicy.adaptive(factor) if grows else PartitionPolicy.fixed(factor)
        self.rules_run = 0
        self.world = World(
            Setup(
                strategy=self.strategy,
                selector=self.selector,
                threads=threads,
                partitions=policy,
                balancer=balancer,
                buffer_size=buffer_size,
                consumer=self.consumer,
            )
        )
        for number, which in enumerate(handlers):
            self.world.add_handler(number, which)

    @rule(number=NUMBERS)
    def produce(self, number: int) -> None:
        """One item."""
        self.world.produce(number)

    @rule(numbers=st.lists(NUMBERS, max_size=12))
    def produce_many(self, numbers: list[int]) -> None:
        """A mixed list."""
        self.world.produce_many(numbers)

    @rule(number=NUMBERS, which=NUMBERS, weight=st.sampled_from((1.0, 0.3, 2.0)))
    def add_handler(self, number: int, which: int, weight: float) -> None:
        """A handler for a new type, which may make the queue grow, or another for a known one."""
        self.world.add_handler(number, which, weight)

    @rule(number=NUMBERS)
    def remove_handler(self, number: int) -> None:
        """A type loses its handler."""
        self.world.remove_handler(number)

    @rule(
        actions=st.lists(st.tuples(st.sampled_from(ACTIONS), NUMBERS), min_size=1, max_size=4),
        numbers=st.lists(NUMBERS, min_size=2, max_size=8),
        picks=st.lists(NUMBERS, min_size=1, max_size=4),
    )
    def work(self, actions: list[tuple[str, int]], numbers: list[int], picks: list[int]) -> None:
        """Items come, some tasks run, and the handlers that are called do things of their own."""
        self.world.plan.extend(actions)
        self.world.produce_many(numbers)
        for pick in picks:
            self.world.step(pick)

    @rule(number=NUMBERS)
    def step(self, number: int) -> None:
        """One of the ready tasks runs, whichever."""
        self.world.step(number)

    @rule()
    def run_until_idle(self) -> None:
        """All tasks run until none is ready."""
        self.world.steps.run_until_idle()

    @rule(seconds=st.sampled_from((MIN_IDLE, MAX_IDLE, INTERVAL)), due=st.booleans())
    def pass_time(self, seconds: float, *, due: bool) -> None:
        """Time passes, and what falls *due* runs, or waits for its turn."""
        (self.world.steps if due else self.world.clock).advance(seconds)

    @rule()
    def rest(self) -> None:
        """Nothing comes for a while: all is drained, and idle handlers are called."""
        self.world.check_idle()

    @precondition(lambda self: self.rules_run > 40)
    @rule(timeout=st.sampled_from((0.0, 1.0)), helpful=st.booleans())
    def shutdown(self, timeout: float, *, helpful: bool) -> None:
        """The queue is shut down; if the threads do not come, its time is up."""
        self.world.shutdown(timeout if helpful else 0.0, helpful=helpful)

    @precondition(lambda self: self.rules_run > 40)
    @rule(name=st.sampled_from(("shutdown", "give_up")))
    def plan_shutdown(self, name: str) -> None:
        """The next handler shuts its own queue down, or somebody does while it is called."""
        self.world.plan.append((name, 0))

    @invariant()
    def holds(self) -> None:
        """Everything is where it must be."""
        self.rules_run += 1
        self.world.check()

    def teardown(self) -> None:
        """Drain and close, and look once more."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.plan.clear()
        world.shutdown(1.0)
        world.steps.run_until_idle()
        world.check()
        assert not world._waiting()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Drops and failures are the point here; saying so costs most of the time."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(machine: type[QueueMachine], strategy: BufferStrategy) -> None:
    """Run *machine* on queues with *strategy*."""
    chosen = type(f"{machine.__name__}_{strategy.name}", (machine,), {"strategy": strategy})
    run_state_machine_as_test(chosen, settings=PROFILE)


class ByType(QueueMachine):
    """The default with handlers: per-type order is promised, and growth re-routes types."""

    selector = "type_hash"


class RoundRobin(QueueMachine):
    """One type on several drainers at once, whose handler is entered once all the same."""

    selector = "round_robin"


class ByKey(QueueMachine):
    """Order is promised per key while the number of partitions stays."""

    selector = "by_key"


class SingleConsumer(QueueMachine):
    """No handlers: everything goes to one consumer, which several threads may enter."""

    selector = "round_robin"
    consumer = True


@pytest.mark.parametrize("strategy", BufferStrategy, ids=lambda s: s.value)
@pytest.mark.parametrize("machine", [ByType, RoundRobin, ByKey, SingleConsumer])
def test_every_item_is_where_it_must_be(
    machine: type[QueueMachine], strategy: BufferStrategy
) -> None:
    """Each accepted item waits, is handled once, or was dropped for a counted cause."""
    run(machine, strategy)
