"""Which partition an item goes to: the contract of all selectors, and each one's own rule."""

import subprocess
import sys
import zlib
from collections import Counter

import pytest

from penstock import PartitionSelector
from penstock.batchqueue.selectors import stable_hash, type_hash
from penstock.errors import ConfigError, SelectorError

SELECTORS = [
    PartitionSelector.type_hash(),
    PartitionSelector.round_robin(),
    PartitionSelector.by_key(str),
    PartitionSelector.of(lambda item, partitions: len(str(item)) % partitions),
]


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: selector.name)
@pytest.mark.parametrize("partitions", [1, 2, 7, 350])
def test_every_selector_answers_with_a_partition(
    selector: PartitionSelector, partitions: int
) -> None:
    """Whatever the item, the answer is an index below the number of partitions."""
    items = [0, -5, "text", b"bytes", 2.5, ("a", 1), object(), frozenset()]
    assert all(0 <= selector.index(item, partitions) < partitions for item in items)


def test_by_type_all_items_of_a_type_go_the_same_way() -> None:
    """The type alone decides, and a subclass is another type."""
    selector = PartitionSelector.type_hash()
    assert {selector.index(item, 100) for item in ("a", "b", "c")} == {type_hash(str) % 100}
    assert selector.index(True, 100) == type_hash(bool) % 100
    assert type_hash(bool) != type_hash(int)


def test_the_hash_of_a_type_is_that_of_its_qualified_name() -> None:
    """It is a checksum of module and name, so it is the same in every process and run."""
    assert type_hash(str) == zlib.crc32(b"builtins.str")


def test_the_hashes_agree_in_another_process() -> None:
    """A process with another hash seed places types, strings and bytes alike."""
    script = (
        "from penstock.batchqueue.selectors import stable_hash, type_hash\n"
        "print(type_hash(dict), stable_hash('key'), stable_hash(b'key'), stable_hash(7))"
    )
    for seed in ("1", "2"):
        shown = subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        here = type_hash(dict), stable_hash("key"), stable_hash(b"key"), stable_hash(7)
        assert shown.split() == [str(number) for number in here]


def test_other_keys_have_their_own_hash() -> None:
    """What is neither text nor bytes is hashed by Python."""
    assert stable_hash((1, 2)) == hash((1, 2))
    assert stable_hash("key") == zlib.crc32(b"key") == stable_hash(b"key")


def test_round_robin_takes_turns() -> None:
    """Each item goes to the next partition, whatever it is."""
    selector = PartitionSelector.round_robin()
    assert [selector.index("same", 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_by_key_equal_keys_go_the_same_way() -> None:
    """The key decides, and different keys spread over the partitions."""
    selector = PartitionSelector.by_key(lambda item: item["id"])
    chosen = {n: selector.index({"id": f"id-{n}", "value": 1}, 8) for n in range(400)}
    again = {n: selector.index({"id": f"id-{n}", "value": 2}, 8) for n in range(400)}
    assert chosen == again
    assert min(Counter(chosen.values()).values()) > 20


def test_any_callable_can_be_a_selector() -> None:
    """A function keeps its name, an object without one is called custom."""

    class First:
        def __call__(self, item: object, partitions: int) -> int:
            del item, partitions
            return 0

    def last(_item: object, partitions: int) -> int:
        return partitions - 1

    assert PartitionSelector.of(last).index("x", 5) == 4
    assert PartitionSelector.of(last).name.endswith("last")
    assert PartitionSelector.of(First()).name == "custom"
    ready = PartitionSelector.round_robin()
    assert PartitionSelector.of(ready) is ready


@pytest.mark.parametrize("answer", [-1, 4, 2**40, True, 1.0, None, "1"])
def test_a_wrong_answer_is_an_error_that_names_it(answer: object) -> None:
    """Only an int from 0 to partitions - 1 will do; no bool, no whole float."""
    selector = PartitionSelector("mine", lambda _item, _n: answer)  # type: ignore[arg-type,return-value]
    message = rf"selector mine chose partition {answer!r} for an item of type str; .* 0 to 3"
    with pytest.raises(SelectorError, match=message):
        selector.index("x", 4)


def test_what_the_selector_raises_reaches_the_caller() -> None:
    """A selector's own error is not disguised."""
    selector = PartitionSelector.by_key(lambda item: item["id"])
    with pytest.raises(KeyError):
        selector.index({}, 4)


@pytest.mark.parametrize("wrong", [None, 3, "type_hash"])
def test_what_cannot_be_called_is_no_selector(wrong: object) -> None:
    """Both the key and the selector itself must be callable."""
    with pytest.raises(ConfigError, match=r"by_key\(key\) must be callable"):
        PartitionSelector.by_key(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="selector must be a PartitionSelector or callable"):
        PartitionSelector.of(wrong)  # type: ignore[arg-type]


def test_selectors_are_compared_by_how_they_choose() -> None:
    """Two round robins agree; other selectors only if they call the same function."""

    def mine(_item: object, _partitions: int) -> int:
        return 0

    def other(_item: object, _partitions: int) -> int:
        return 0

    assert PartitionSelector.type_hash() == PartitionSelector.type_hash()
    assert PartitionSelector.round_robin() == PartitionSelector.round_robin()
    assert PartitionSelector.of(mine) == PartitionSelector.of(mine)
    assert PartitionSelector.of(mine) != PartitionSelector.of(other)
    assert PartitionSelector.type_hash() != PartitionSelector.round_robin()
    assert PartitionSelector.by_key(len) != PartitionSelector.by_key(str)
    assert PartitionSelector.type_hash() != "type_hash"
    assert len({PartitionSelector.round_robin(), PartitionSelector.round_robin()}) == 1


def test_a_selector_shows_its_name() -> None:
    """The repr is short enough for a log line."""
    assert repr(PartitionSelector.type_hash()) == "PartitionSelector.type_hash"
