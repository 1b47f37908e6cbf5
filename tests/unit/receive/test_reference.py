"""The reference page says what is so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from penstock.receive.grpc_server import _CODES
from penstock.receive.http_server import _STATUSES
from penstock.receive.intake import _REASONS
from penstock.receive.outcome import Verdict
from penstock.receive.settings import ReceiveSettings

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs/reference/otlp.md").read_text("utf-8")


def test_every_test_on_the_page_exists() -> None:
    """A behaviour is shown by a test that can be run."""
    texts = [path.read_text("utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py"))]
    there = set(re.findall(r"^def (test_\w+)", "\n".join(texts), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    assert sorted(named - there) == []


def test_the_limits_on_the_page_are_the_defaults() -> None:
    """All that limit something."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `([\d.]+)` \|", PAGE, re.MULTILINE))
    limits = {
        field.name: repr(field.default)
        for field in dataclasses.fields(ReceiveSettings)
        if isinstance(field.default, int | float) and not field.name.endswith("_port")
    }
    assert rows == limits


def test_the_codes_on_the_page_are_those_that_are_answered() -> None:
    """Every outcome, by both protocols."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+)[^|]* \| `(\w+)`", PAGE, re.MULTILINE)
    assert {outcome for outcome, _, _ in rows} == set(Verdict)
    for outcome, status, code in rows:
        verdict = Verdict(outcome)
        if verdict is not Verdict.ACCEPTED:
            assert int(status) == _STATUSES[verdict][0]
        if verdict in _CODES:
            assert code == _CODES[verdict].name


def test_every_reason_to_leave_a_record_out_is_on_the_page() -> None:
    """By the field at fault."""
    _, _, section = PAGE.partition("## Records that are left out")
    table, _, _ = section.partition("\n## ")
    assert [reason for reason in _REASONS if f"`{reason}`" not in table] == []
