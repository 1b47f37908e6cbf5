"""What users get wrong, and what they are told: the error's type and the words that help."""

import math
from collections.abc import Callable

import pytest

from penstock import (
    BatchQueue,
    BatchQueueConfig,
    BatchQueueManager,
    PartitionPolicy,
    PartitionSelector,
    PenstockError,
    ThreadPolicy,
)
from penstock import errors as errors_module
from penstock.errors import (
    ConfigError,
    InvalidItemError,
    QueueClosedError,
    QueueExistsError,
    QueueModeError,
    ReentrantProduceError,
    SchedulerClosedError,
    SelectorError,
)
from penstock.testing import RecordingHandler, StepExecutor
from tests.unit.rig import Rig

Use = Callable[[Rig], object]
ONE = ThreadPolicy.fixed(1)


def closed(rig: Rig) -> BatchQueue[object]:
    """Return a queue that was shut down."""
    queue = rig.queue()
    queue.shutdown()
    return queue


TABLE: list[tuple[str, Use, type[PenstockError], str]] = [
    # -- names
    ("an empty name", lambda r: r.queue(""), ConfigError, "non-empty str, not ''"),
    ("a number as name", lambda r: r.queue(7), ConfigError, "non-empty str, not 7"),  # type: ignore[arg-type]
    ("no name", lambda r: r.queue(None), ConfigError, "non-empty str, not None"),  # type: ignore[arg-type]
    ("a name twice", lambda r: (r.queue("a"), r.queue("a")), QueueExistsError, "get_or_create()"),
    # -- configuration
    (
        "no threads",
        lambda _: BatchQueueConfig(),
        ConfigError,
        "use threads=ThreadPolicy",
    ),
    ("threads as number", lambda r: r.queue(threads=4), ConfigError, "threads must be a ThreadPol"),
    ("no slots", lambda r: r.queue(buffer_size=0), ConfigError, "buffer_size must be a whole"),
    (
        "partitions as number",
        lambda r: r.queue(partitions=2),
        ConfigError,
        "a PartitionPolicy, not",
    ),
    ("strategy as text", lambda r: r.queue(strategy="drop"), ConfigError, "a BufferStrategy, not"),
    ("half a fixed policy", lambda _: ThreadPolicy.fixed(0), ConfigError, "fixed(count) must be"),
    ("nan cores", lambda _: ThreadPolicy.cpu_cores(math.nan), ConfigError, "finite number above 0"),
    ("no partition", lambda _: PartitionPolicy.fixed(0), ConfigError, "at least 1, not 0"),
    ("a key as text", lambda _: PartitionSelector.by_key("id"), ConfigError, "must be callable"),  # type: ignore[arg-type]
    ("consumer as text", lambda r: r.queue(consumer="me"), ConfigError, "consumer must be a Handl"),
    # -- handlers
    (
        "an instance as type",
        lambda r: r.queue().add_handler("str", print),  # type: ignore[arg-type]
        ConfigError,
        "add_handler(type_) must be a class, not 'str'",
    ),
    (
        "a union as type",
        lambda r: r.queue().add_handler(int | str, print),  # type: ignore[arg-type]
        ConfigError,
        "add_handler(type_) must be a class, not int | str",
    ),
    (
        "a generic as type",
        lambda r: r.queue().add_handler(list[int], print),
        ConfigError,
        "add_handler(type_) must be a class, not list[int]",
    ),
    (
        "no handler",
        lambda r: r.queue().add_handler(str, None),  # type: ignore[arg-type]
        ConfigError,
        "add_handler(handler) must be a HandlerConsumer",
    ),
    (
        "a type as handler",
        lambda r: r.queue().add_handler(str, dict),
        ConfigError,
        "add_handler(handler) must be a HandlerConsumer",
    ),
    *(
        (
            f"a weight of {weight!r}",
            lambda r, w=weight: r.queue().add_handler(str, print, weight=w),
            ConfigError,
            "add_handler(weight) must be a finite number above 0, not ",
        )
        for weight in (0, -1.0, math.nan, math.inf, True, "1", None)
    ),
    (
        "a handler beside a consumer",
        lambda r: r.queue(consumer=print).add_handler(str, print),
        QueueModeError,
        "need a queue without consumer=",
    ),
    (
        "a handler after the end",
        lambda r: closed(r).add_handler(str, print),
        QueueClosedError,
        "takes no more handlers",
    ),
    # -- items
    ("None", lambda r: r.queue().produce(None), InvalidItemError, "leave it out, or wrap it"),
    (
        "a selector that misses",
        lambda r: r.queue(partitions=PartitionPolicy.fixed(2), selector=lambda *_: 2).produce("a"),
        SelectorError,
        "for an item of type str; it must return an int from 0 to 1",
    ),
]


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [pytest.param(use, error, words, id=name) for name, use, error, words in TABLE],
)
def test_a_mistake_is_told_in_words_that_help(
    use: Use, error: type[PenstockError], words: str
) -> None:
    """The error says what was wrong, and is of the type that its docstring describes."""
    with pytest.raises(error) as caught:
        use(Rig())
    assert type(caught.value) is error
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (ConfigError, ValueError),
        (InvalidItemError, TypeError),
        (SelectorError, ValueError),
        (QueueExistsError, ValueError),
        (QueueModeError, RuntimeError),
        (QueueClosedError, RuntimeError),
        (SchedulerClosedError, RuntimeError),
        (ReentrantProduceError, RuntimeError),
    ],
)
def test_every_error_can_be_caught_in_two_ways(
    error: type[PenstockError], builtin: type[Exception]
) -> None:
    """As an error of penstock, and as the kind of mistake that Python knows."""
    assert issubclass(error, PenstockError)
    assert issubclass(error, builtin)
    assert error.__doc__


def test_all_errors_are_exported_and_explained() -> None:
    """Nothing that penstock raises is missing from its list."""
    defined = {
        name
        for name, value in vars(errors_module).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert defined == set(errors_module.__all__)


def test_a_refused_handler_changes_nothing() -> None:
    """After a mistake the queue is as it was: the old handler stays, nothing has grown."""
    rig = Rig()
    queue = rig.queue(partitions=PartitionPolicy.adaptive())
    handler = RecordingHandler[str]()
    queue.add_handler(str, handler)
    for wrong in (None, 3):
        with pytest.raises(ConfigError):
            queue.add_handler(str, wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        queue.add_handler(str, print, weight=0)
    queue.produce("a")
    rig.drain()
    assert handler.items == ["a"]
    assert queue.stats().partition_count == 1


def test_a_refused_queue_leaves_no_trace() -> None:
    """A name that was refused is not registered."""
    manager = BatchQueueManager(factory=StepExecutor())
    with pytest.raises(ConfigError):
        manager.create("", BatchQueueConfig(threads=ONE))
    assert manager.queues() == ()


def test_an_infinite_weight_is_refused() -> None:
    """No queue has endlessly many partitions, and the next handler is not the victim."""
    queue = Rig().queue(partitions=PartitionPolicy.adaptive())
    with pytest.raises(ConfigError):
        queue.add_handler(str, print, weight=math.inf)
    queue.add_handler(int, print)


def test_a_handler_class_is_not_a_handler() -> None:
    """Forgetting the brackets is noticed at once, not with the first batch."""
    with pytest.raises(ConfigError):
        Rig().queue().add_handler(str, RecordingHandler)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Rig().queue(consumer=RecordingHandler)
