"""Where a setting comes from: flag, environment, file or default, and what is said of mistakes."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import _settings, main
from penstock.errors import ConfigError


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep away what the machine's own environment says."""
    monkeypatch.chdir(tmp_path)
    for name in ("PENSTOCK_CONFIG", "PENSTOCK_STORE", "PENSTOCK_LANDING"):
        monkeypatch.delenv(name, raising=False)


def options(*arguments: str) -> argparse.Namespace:
    """Return what a command line comes to."""
    return main._parser(arguments).parse_args(arguments)


def written(text: str, name: str = "penstock.toml") -> Path:
    """Write a file of settings into the working folder."""
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_flag_stands_over_the_environment_that_over_the_file_that_over_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each source gives way to the one before it."""
    receive = ("receive", "--landing", "here")
    assert options(*receive).grpc_port == 4317
    written("[receive]\ngrpc_port = 1000\n")
    assert options(*receive).grpc_port == 1000
    monkeypatch.setenv("PENSTOCK_RECEIVE_GRPC_PORT", "2000")
    assert options(*receive).grpc_port == 2000
    assert options(*receive, "--grpc-port", "3000").grpc_port == 3000


def test_a_shared_setting_is_for_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The landing folder and the store are said once, and are not required any more."""
    written('landing = "from-file"\n')
    monkeypatch.setenv("PENSTOCK_STORE", "from-environment.db")
    assert options("receive").landing == Path("from-file")
    assert options("aggregate").landing == Path("from-file")
    assert options("up").landing == Path("from-file")
    for command in (("aggregate",), ("query",), ("top", "cache_read"), ("up",)):
        assert options(*command).store == "from-environment.db"


@pytest.mark.parametrize("action", ["migrate", "show"])
def test_a_command_below_another_has_settings_too(
    monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """`penstock store migrate` finds its store where the others do."""
    monkeypatch.setenv("PENSTOCK_STORE", "metrics.db")
    assert options("store", action).store == "metrics.db"


def test_the_file_is_named_by_flag_or_variable_or_lies_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flag is asked first, then PENSTOCK_CONFIG, then penstock.toml in the working folder."""
    written('store = "here.db"\n')
    written('store = "variable.db"\n', "variable.toml")
    written('store = "flag.db"\n', "flag.toml")
    assert options("query").store == "here.db"
    monkeypatch.setenv("PENSTOCK_CONFIG", "variable.toml")
    assert options("query").store == "variable.db"
    assert options("--config", "flag.toml", "query").store == "flag.db"
    assert options("--config=flag.toml", "query").store == "flag.db"
    monkeypatch.setenv("PENSTOCK_CONFIG", "")
    assert options("query").store == "here.db"


def test_a_file_with_the_name_of_a_command_is_a_file() -> None:
    """What follows --config is not taken for the command."""
    written('store = "a.db"\n[receive]\ngrpc_port = 1\n', "receive")
    assert options("--config", "receive", "query").store == "a.db"


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("Yes", True), ("1", True), ("false", False), ("no", False), ("0", False)],
)
def test_a_variable_says_yes_or_no_in_words(
    monkeypatch: pytest.MonkeyPatch, text: str, value: object
) -> None:
    """A flag without a value is a truth value elsewhere."""
    monkeypatch.setenv("PENSTOCK_RECEIVE_QUIET", text)
    assert options("receive", "--landing", "x").quiet is value


def test_a_flag_that_says_yes_cannot_be_taken_back() -> None:
    """False in the file is the default; the flag stands over it."""
    written("[receive]\nquiet = false\n")
    assert options("receive", "--landing", "x", "--quiet").quiet is True


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a=1,b=2", ["a=1", "b=2"]),
        (" a=1 , b=2,", ["a=1", "b=2"]),
        ('["a=1,2", "b=3"]', ["a=1,2", "b=3"]),
        ("", []),
    ],
)
def test_a_list_in_a_variable_is_separated_by_commas_or_json(
    monkeypatch: pytest.MonkeyPatch, text: str, value: list[str]
) -> None:
    """Values that hold commas are written as JSON."""
    monkeypatch.setenv("PENSTOCK_AGGREGATE_CONF", text)
    assert options("aggregate", "--landing", "x", "--store", "y").conf == value


def test_a_list_in_the_file_is_a_list() -> None:
    """Rules become paths."""
    written('[aggregate]\nrules = ["a.oal", "b.oal"]\n')
    aggregate = ("aggregate", "--landing", "x", "--store", "y")
    assert options(*aggregate).rules == [Path("a.oal"), Path("b.oal")]
    assert options(*aggregate, "--rules", "c.oal").rules == [Path("c.oal")]


def test_a_repeated_flag_replaces_the_list_of_the_file() -> None:
    """Flags stand over the file, also where they may be given several times."""
    written('[aggregate]\nconf = ["a=1"]\n')
    aggregate = ("aggregate", "--landing", "x", "--store", "y")
    assert options(*aggregate).conf == ["a=1"]
    assert options(*aggregate, "--conf", "b=2", "--conf", "c=3").conf == ["b=2", "c=3"]
    assert options(*aggregate).conf == ["a=1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[receive]\ngrcp_port = 1\n", "receive.grcp_port is not a setting; did you mean receive."),
        ("[receive]\nlanding = 'x'\n", "receive.landing is not a setting; did you mean landing?"),
        ("[up]\ngrpc_port = 1\n", "did you mean receive.grpc_port?"),
        ("sotre = 'x'\n", "sotre is not a setting; did you mean store?"),
        ("[qwxz]\na = 1\n", "qwxz is not a setting; see: penstock config show"),
        ("[query]\nlimit = 5\n", "query.limit is not a setting"),
        ("[aggregate]\nonce = true\n", "aggregate.once is not a setting"),
        ("receive = 5\n", "receive must be a table: [receive]"),
        ("[receive]\ngrpc_port = 'x'\n", "receive.grpc_port: 'x' is not a whole number"),
        ("[receive]\ngrpc_port = 1.5\n", "receive.grpc_port: '1.5' is not a whole number"),
        ("[receive]\ngrpc_port = true\n", "receive.grpc_port: True is not a text or a number"),
        ("[receive]\nquiet = 'yes'\n", "receive.quiet: 'yes' is neither true nor false"),
        ("[receive]\nsegment_age = -1\n", "receive.segment_age: '-1' is not a number above 0"),
        ("log_level = 'loud'\n", "log_level: 'loud' is none of debug, info, warning, error"),
        ("[aggregate]\nrules = 'a'\n", "aggregate.rules: 'a' is not a list; write ['a']"),
        ("store = ['a']\n", "store: ['a'] is not a text or a number"),
        ("store = \n", "is not TOML"),
    ],
)
def test_a_mistake_in_the_file_names_the_file_the_key_and_the_remedy(text: str, said: str) -> None:
    """Nothing is guessed: what cannot be meant is an error."""
    written(text)
    command = ("receive",) if "[receive]" in text else ("aggregate", "--store", "y")
    with pytest.raises(ConfigError) as caught:
        options(*command, "--landing", "x")
    assert "penstock.toml" in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PENSTOCK_RECEIVE_GRPC_PORT", "x", "PENSTOCK_RECEIVE_GRPC_PORT: 'x' is not a whole"),
        ("PENSTOCK_RECEIVE_QUIET", "maybe", "PENSTOCK_RECEIVE_QUIET: 'maybe' is neither"),
        ("PENSTOCK_LOG_LEVEL", "loud", "PENSTOCK_LOG_LEVEL: 'loud' is none of"),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, said: str
) -> None:
    """Whoever set it knows where to look."""
    monkeypatch.setenv(name, text)
    with pytest.raises(ConfigError, match="^" + said):
        options("receive", "--landing", "x")


def test_a_list_that_is_no_json_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bracket begins JSON."""
    monkeypatch.setenv("PENSTOCK_AGGREGATE_CONF", "[a=1")
    with pytest.raises(ConfigError, match=r"PENSTOCK_AGGREGATE_CONF: .* is not a JSON list"):
        options("aggregate", "--landing", "x", "--store", "y")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("PENSTOCK_RECEIVE_GRPCPORT", "did you mean PENSTOCK_RECEIVE_GRPC_PORT?"),
        ("PENSTOCK_UP_GRPC_PORT", "did you mean PENSTOCK_RECEIVE_GRPC_PORT?"),
        ("PENSTOCK_QUERY_LIMIT", "PENSTOCK_QUERY_LIMIT is not a setting"),
        ("PENSTOCK_STROE", "did you mean PENSTOCK_STORE?"),
    ],
)
def test_a_variable_that_means_nothing_is_told_and_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    """The environment is shared with others, so it is no error."""
    monkeypatch.setenv(name, "1")
    options("receive", "--landing", "x")
    assert said in capsys.readouterr().err


def test_variables_of_others_are_not_mentioned(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that only begins alike has its own reasons to be there."""
    monkeypatch.setenv("PENSTOCK_HOME", "/opt")
    monkeypatch.setenv("PENSTOCKS", "1")
    options("receive", "--landing", "x")
    assert capsys.readouterr().err == ""


def test_a_missing_file_that_was_named_is_an_error() -> None:
    """Only penstock.toml may be missing."""
    with pytest.raises(ConfigError, match=r"the file gone\.toml cannot be read: No such file"):
        options("--config", "gone.toml", "query")


def test_help_is_had_whatever_the_file_says(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake in the settings does not keep anyone from learning the options."""
    written("nonsense\n")
    with pytest.raises(SystemExit) as caught:
        main.main(["receive", "--help"])
    assert caught.value.code == 0
    assert "usage: penstock receive" in capsys.readouterr().out


def test_commands_without_settings_do_not_read_the_file() -> None:
    """A broken file is no concern of `penstock metrics list`."""
    written("nonsense\n")
    assert options("metrics", "list").command == "metrics"


# -- penstock config show ------------------------------------------------------------------------


def shown(capsys: pytest.CaptureFixture[str], *before: str) -> Mapping[str, dict[str, Any]]:
    """Return what `config show --json` says, by key."""
    assert main.main([*before, "config", "show", "--json"]) == 0
    rows: Sequence[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return {row["key"]: row for row in rows}


def test_config_show_tells_values_and_where_they_come_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are JSON's own; the origin is the variable, the file, or the default."""
    written('landing = "land"\n[receive]\ngrpc_port = 5\n', "mine.toml")
    monkeypatch.setenv("PENSTOCK_AGGREGATE_RULES", "a.oal,b.oal")
    rows = shown(capsys, "--config", "mine.toml")
    assert rows["landing"] == {"key": "landing", "value": "land", "from": "mine.toml"}
    assert rows["receive.grpc_port"] == {
        "key": "receive.grpc_port",
        "value": 5,
        "from": "mine.toml",
    }
    assert rows["receive.quiet"]["value"] is False
    assert rows["receive.token_file"] == {
        "key": "receive.token_file",
        "value": None,
        "from": "default",
    }
    assert rows["aggregate.rules"]["value"] == ["a.oal", "b.oal"]
    assert rows["aggregate.rules"]["from"] == "PENSTOCK_AGGREGATE_RULES"
    assert "query.limit" not in rows


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://me:secret@db/metrics", "postgresql://me:***@db/metrics"),
        ("postgresql://me:se@cret@db/metrics", "postgresql://me:***@db/metrics"),
        ("postgresql://db/m?user=me&password=secret", "postgresql://db/m?user=me&password=***"),
        ("postgresql://me@db:5432/metrics", "postgresql://me@db:5432/metrics"),
    ],
)
def test_config_show_masks_passwords(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str, masked: str
) -> None:
    """What is shown may be sent to others."""
    monkeypatch.setenv("PENSTOCK_STORE", url)
    assert shown(capsys)["store"]["value"] == masked
    assert main.main(["config", "show"]) == 0
    assert "secret" not in capsys.readouterr().out


def test_config_show_is_a_table_for_readers(capsys: pytest.CaptureFixture[str]) -> None:
    """One line per setting, and the file that was read."""
    written('log_level = "info"\n')
    assert main.main(["config", "show"]) == 0
    said = capsys.readouterr()
    lines = {line.split()[0]: line.split()[1:] for line in said.out.splitlines()}
    assert lines["SETTING"] == ["VALUE", "FROM"]
    assert lines["log_level"] == ["info", "penstock.toml"]
    assert lines["receive.quiet"] == ["false", "default"]
    assert lines["receive.tls_key"] == ["-", "default"]
    assert "file: penstock.toml" in said.err


def test_config_show_ends_with_1_if_a_setting_cannot_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says which."""
    written("[receive]\ngrpc_port = 'x'\n")
    assert main.main(["config", "show"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("penstock: penstock.toml: receive.grpc_port: 'x' is not a whole")
    assert said.err.count("\n") == 1


def test_every_variable_has_one_setting() -> None:
    """No two options of different meaning share a variable."""
    parser = main._parser(())
    group = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    names = [
        (command, name)
        for command in main._CONFIGURABLE
        for name in set(_settings.settings_of(group.choices[command], command))
        if name not in _settings.SHARED
    ]
    variables = [_settings.variable(*name) for name in names]
    assert len(variables) == len(set(variables))
