"""Rules from files: together, from any place, and those that come with penstock."""

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from penstock import metrics
from penstock.errors import DependencyError, RulesError
from penstock.metrics import default_rules, load_rules, parse_files, parse_rules
from penstock.metrics.loading import LARGEST_FILE
from penstock.metrics.sources import SOURCES

ROOT = Path(__file__).resolve().parents[3]
CORE = ROOT.parent / "shared" / "data" / "oal" / "core.oal"

# The metrics of SkyWalking's core rules, by what they are about.
CORE_NAMES = {
    *(f"service_{name}" for name in ("resp_time", "sla", "cpm", "percentile", "apdex")),
    *("service_mq_consume_count", "service_mq_consume_latency", "endpoint_mq_consume_latency"),
    *(f"service_instance_{name}" for name in ("sla", "resp_time", "cpm")),
    *(f"endpoint_{name}" for name in ("cpm", "resp_time", "sla", "percentile")),
    *(
        f"{scope}_relation_{side}_{name}"
        for scope in ("service", "service_instance")
        for side in ("client", "server")
        for name in ("cpm", "call_sla", "resp_time", "percentile")
    ),
    *(
        f"{scope}_{name}"
        for scope in (
            *("endpoint_relation", "database_access"),
            *("cache_read", "cache_write", "cache_access"),
        )
        for name in ("cpm", "sla", "resp_time", "percentile")
    ),
    *(
        f"mq_{scope}_{name}"
        for scope in ("service", "endpoint")
        for name in (
            *("consume_cpm", "consume_sla", "consume_latency", "consume_percentile"),
            *("produce_cpm", "produce_sla"),
        )
    ),
}


def write(path: Path, text: str) -> Path:
    """Write a file of rules."""
    path.write_text(text, encoding="utf-8")
    return path


def test_the_default_rules_have_every_metric_of_the_core_rules() -> None:
    """Who knows SkyWalking finds the names that they know, and few others."""
    names = {metric.name for metric in default_rules()}
    assert len(CORE_NAMES) == 63
    assert names >= CORE_NAMES
    assert len(names) <= 70


def test_the_default_rules_use_every_source() -> None:
    """There is a metric of everything that spans tell."""
    assert {metric.source for metric in default_rules()} == set(SOURCES)


def test_the_core_rules_are_read_whole() -> None:
    """All 63 metrics of the public file compile, and ours mean the same under the same name."""
    if not CORE.is_file():
        pytest.skip("core.oal is not at hand")
    core = {metric.name: metric for metric in load_rules([CORE])}
    assert set(core) == CORE_NAMES
    ours = {metric.name: metric for metric in default_rules()}
    assert {name: ours[name].definition for name in core} == {
        name: metric.definition for name, metric in core.items()
    }


def test_files_are_used_together(tmp_path: Path) -> None:
    """Metrics come in the order of the files; one file may disable what another defines."""
    one = write(tmp_path / "one.oal", "a = from(Service.*).cpm(); b = from(Service.*).cpm();")
    two = write(tmp_path / "two.oal", "disable(b); c = from(Endpoint.*).cpm();")
    assert [metric.name for metric in load_rules([one, str(two)])] == ["a", "c"]
    assert [metric.name for metric in load_rules([two, one])] == ["c", "a"]


def test_a_name_is_unique_among_all_files(tmp_path: Path) -> None:
    """The second definition is the error, and it says where the first one is."""
    one = write(tmp_path / "one.oal", "\na = from(Service.*).cpm();")
    two = write(tmp_path / "two.oal", "a = from(Endpoint.*).cpm();")
    (found,) = parse_files([one, two]).diagnostics
    assert found.file == str(two)
    assert found.message == 'metric "a" is defined already'
    assert found.suggestion == f"the first is in {one}:2; rename this one"


def test_loading_tells_every_error_of_every_file(tmp_path: Path) -> None:
    """The message of the exception is all that one needs to repair the files."""
    one = write(tmp_path / "one.oal", "a = from(Servise.*).cpm();\nb = from(Service.*).cpn();")
    two = write(tmp_path / "two.oal", "c = from(Service.*")
    with pytest.raises(RulesError) as caught:
        load_rules([one, two])
    message = str(caught.value)
    assert message.startswith("the rules have 3 errors\n")
    assert [str(found) in message for found in parse_files([one, two]).diagnostics] == [True] * 3


def test_one_error_is_not_called_errors(tmp_path: Path) -> None:
    """The message is a sentence."""
    with pytest.raises(RulesError, match="the rules have 1 error\n"):
        load_rules([tmp_path / "missing.oal"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.oal", "No such file or directory"),
        ("folder", "Is a directory"),
        ("with\0nul", "embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_like_any_other(
    name: str, reason: str, tmp_path: Path
) -> None:
    """The reason is the system's; the other files are read all the same."""
    (tmp_path / "folder").mkdir()
    bad = write(tmp_path / "bad.oal", "a = from(Servise.*).cpm();")
    path = f"{tmp_path}/{name}"
    first, second = parse_files([path, bad]).diagnostics
    assert (first.file, first.line, first.column) == (path, 0, 0)
    assert first.message == f"the file cannot be read: {reason}"
    assert first.suggestion == "name a file that exists and that you may read"
    assert second.message == 'unknown source "Servise"'


def test_a_file_that_is_not_utf_8_is_told_where(tmp_path: Path) -> None:
    """Line and column are those of the first byte that is wrong."""
    path = tmp_path / "latin.oal"
    path.write_bytes("// ok\n// größe\n".encode("latin-1"))
    (found,) = parse_files([path]).diagnostics
    assert (found.line, found.column) == (2, 6)
    assert found.message == "the file is not text in UTF-8: byte 0xf6"
    assert found.suggestion == "save it as UTF-8"


@pytest.mark.parametrize("content", [b"\x7fELF\0\xff\0", "// x".encode("utf-16-le")])
def test_a_binary_file_is_one_error(content: bytes, tmp_path: Path) -> None:
    """Nobody wants to see a thousand errors about a program or a file in UTF-16."""
    path = tmp_path / "binary.oal"
    path.write_bytes(content)
    (found,) = parse_files([path]).diagnostics
    assert found.message == "this is not text: it has a NUL character"


def test_a_file_without_end_is_not_read_to_the_end(tmp_path: Path) -> None:
    """What is larger than rules can be is refused by its size."""
    path = tmp_path / "large.oal"
    with path.open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    (found,) = parse_files([path]).diagnostics
    assert found.message == "the file is larger than 1 MiB"


def test_no_files_are_no_metrics() -> None:
    """Nothing was asked for, and nothing is wrong."""
    assert load_rules([]) == ()


def test_grammar_and_rules_are_part_of_the_package() -> None:
    """Whatever installs the package has to bring them."""
    package = files("penstock.metrics")
    for name in ("oal.lark", "rules/default.oal"):
        assert package.joinpath(name).is_file()


def test_grammar_and_rules_are_shipped_in_the_wheel() -> None:
    """The build takes along what is not Python."""
    builders = pytest.importorskip("hatchling.builders.wheel")
    builder = builders.WheelBuilder(str(ROOT))
    with builder.config.set_build_data({"artifacts": [], "force_include": {}}):
        shipped = {file.distribution_path for file in builder.recurse_included_files()}
    assert {"penstock/metrics/oal.lark", "penstock/metrics/rules/default.oal"} <= shipped


def test_reading_rules_without_lark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing extra is named, not shown as an import that failed."""
    monkeypatch.delitem(sys.modules, "penstock.metrics.parser", raising=False)
    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(DependencyError, match=r"install penstock\[metrics\]"):
        parse_rules("a = from(Service.*).cpm();")


def test_computing_metrics_does_not_need_lark() -> None:
    """Where metrics are only computed, the parser is not loaded."""
    code = (
        "import json, sys, penstock.metrics.functions as _;"
        "print(json.dumps([name for name in sys.modules if name.startswith('lark')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_package_offers_what_it_names() -> None:
    """Every exported name exists."""
    assert all(hasattr(metrics, name) for name in metrics.__all__)
