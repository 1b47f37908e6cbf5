"""The native decoder gives what a plain loop over the messages gives, whatever is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry import otlp, plain
from penstock.telemetry.schema import SIGNALS, Signal
from tests.unit.telemetry.rig import EXAMPLES, PATIENT, requests, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def check(signal: Signal, payloads: Sequence[bytes]) -> None:
    """Decode both ways and compare."""
    native, expected = otlp.decode(signal, payloads), plain.decode(signal, payloads)
    native.table.validate(full=True)
    assert native.table.schema.equals(SIGNALS[signal])
    assert rows_of(native.table) == rows_of(expected.table)
    assert native.reasons == expected.reasons
    assert native.rejected == expected.rejected == sum(native.reasons.values())


@pytest.mark.parametrize("signal", Signal)
@settings(PATIENT, max_examples=50 * EXAMPLES)
@given(data=st.data())
def test_any_requests_are_decoded_as_by_a_plain_loop(signal: Signal, data: st.DataObject) -> None:
    """All kinds of values, missing fields, duplicates, rejected records: the tables are equal."""
    messages: list[Any] = data.draw(st.lists(requests(signal), max_size=3))
    check(signal, [message.SerializeToString() for message in messages])
