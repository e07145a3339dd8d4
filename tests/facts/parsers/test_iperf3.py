"""iperf3's JSON: own recordings of iperf 3.12 in a lab at 1 Gbit/s, and the samples where they are at hand."""

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.iperf3 import Iperf3, parse_iperf3

FIXTURES = Path(__file__).parents[2] / "fixtures" / "iperf3"
SAMPLES = Path(__file__).parents[4] / "shared" / "samples"


def read(name: str) -> Iperf3:
    return parse_iperf3((FIXTURES / name).read_text())


def test_every_value_of_a_forward_run() -> None:
    run = read("forward.json")
    assert (run.version, run.protocol, run.streams, run.reverse) == ("iperf 3.12", "TCP", 1, False)
    assert run.sent_gbit_s == pytest.approx(0.97300360672)
    assert run.received_gbit_s == pytest.approx(0.95572142303)
    assert run.duration_s == pytest.approx(2.000154)
    assert run.rtt_mean_ms == pytest.approx(1.193)
    assert (run.retransmits, run.congestion, run.error) == (0, "bbr", None)


def test_a_reverse_run_has_no_round_trip_time_of_its_own() -> None:
    run = read("reverse.json")
    assert run.reverse is True
    assert run.received_gbit_s == pytest.approx(0.96006078207)
    assert run.rtt_mean_ms is None


def test_streams_are_counted_and_their_round_trips_averaged() -> None:
    run = read("streams-2.json")
    assert run.streams == 2
    assert run.rtt_mean_ms == pytest.approx(2.326)


def test_udp_counts_no_retransmits() -> None:
    run = read("udp.json")
    assert (run.protocol, run.retransmits, run.congestion) == ("UDP", None, None)
    assert run.received_gbit_s == pytest.approx(0.04958903121)


def test_a_refused_connection_is_an_error_not_a_rate() -> None:
    run = read("refused.json")
    assert run.error == "unable to connect to server: Connection refused"
    assert run.received_gbit_s is None


@pytest.mark.parametrize("text", ["", "  \n", "iperf3: command not found", '{"other": 1}', '{"end": []}', "[1]"])
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_iperf3(text)


def test_a_cut_document_is_refused_with_its_line() -> None:
    lines = (FIXTURES / "forward.json").read_text().splitlines(keepends=True)
    with pytest.raises(ParseError, match=f"line {len(lines) // 2}: "):
        parse_iperf3("".join(lines[: len(lines) // 2]))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"end": {"sum_sent": {"bits_per_second": "fast"}}}', "'bits_per_second' is 'fast'"),
        ('{"end": {"sum_sent": [1]}}', "'sum_sent'.*not an object"),
        ('{"end": {"streams": [1]}}', "'streams'.*list of objects"),
        ('{"end": {"streams": [{"sender": {"mean_rtt": true}}]}}', "'mean_rtt'"),
        ('{"error": "x", "start": {"test_start": {"num_streams": 1.5}}}', "whole number"),
        ('{"end": {"sum_sent": {"bits_per_second": 1e999}}}', "'bits_per_second' is 'inf'"),
        ('{"end": ' + "[" * 100_000, "line 1"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_iperf3(text)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples of other versions are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "received", "error"),
    [
        ("iperf3-json-3.6-5s.txt", 0.35029657428915395, None),
        ("iperf3-json-end-3.16.txt", 94.1, None),
        ("iperf3-json-error-warning-prefix.txt", None, "unable to connect to server: Connection refused"),
    ],
)
def test_samples_of_other_versions(name: str, received: float | None, error: str | None) -> None:
    run = parse_iperf3((SAMPLES / name).read_text())
    assert (run.received_gbit_s, run.error) == (received, error)
