"""Every end of a request has its words in both protocols."""

from __future__ import annotations

import pytest
from google.rpc.error_details_pb2 import BadRequest, RetryInfo

from penstock.receive.grpc_server import _CODES, RESPONSES, RETRYABLE, response_of, status_of
from penstock.receive.http_server import _STATUSES
from penstock.receive.outcome import Outcome, Verdict
from penstock.telemetry.schema import Signal

ERRORS = [verdict for verdict in Verdict if verdict is not Verdict.ACCEPTED]


def test_every_error_has_a_status_in_http() -> None:
    """None would be answered with 500."""
    assert sorted(_STATUSES) == sorted(ERRORS)


def test_every_error_of_the_intake_has_a_code_in_grpc() -> None:
    """Sizes and encodings are looked after by gRPC itself."""
    assert sorted(_CODES) == sorted({*ERRORS} - {Verdict.TOO_LARGE, Verdict.UNSUPPORTED})


@pytest.mark.parametrize("verdict", ERRORS)
def test_only_what_may_be_repeated_says_when(verdict: Verdict) -> None:
    """Clients take RESOURCE_EXHAUSTED for final unless it says when to come again."""
    status = status_of(8, Outcome(verdict, "why"), 1.5)
    found = [detail for detail in status.details if detail.Is(RetryInfo.DESCRIPTOR)]
    assert (len(found) == 1) is (verdict in RETRYABLE)
    if found:
        retry = RetryInfo()
        assert found[0].Unpack(retry)
        assert retry.retry_delay.ToMilliseconds() == 1500


def test_bad_data_is_described_in_the_details() -> None:
    """As OTLP asks: a BadRequest."""
    status = status_of(3, Outcome(Verdict.MALFORMED, "no JSON"), 1.0)
    bad = BadRequest()
    assert status.details[0].Unpack(bad)
    assert [violation.description for violation in bad.field_violations] == ["no JSON"]


@pytest.mark.parametrize("signal", Signal)
def test_partial_success_is_set_only_if_something_was_left_out(signal: Signal) -> None:
    """OTLP: the field stays unset if all was accepted."""
    _, counter = RESPONSES[signal]
    assert not response_of(signal, Outcome(Verdict.ACCEPTED)).HasField("partial_success")
    partial = response_of(signal, Outcome(Verdict.ACCEPTED, "2 left out", 2)).partial_success
    assert getattr(partial, counter) == 2
    assert partial.error_message == "2 left out"
