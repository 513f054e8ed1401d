import pytest

from headrace.cli.benching import summarize
from headrace.cli.errors import BadArgument
from headrace.cli.options import parse_pairs
from headrace.cli.output import count, human_bytes, rate


def test_sizes_have_units():
    assert [human_bytes(size) for size in (0, 1023, 1536, 5 * 1024**3, 2 * 1024**5)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "2048.0 TiB",
    ]


def test_counts_and_rates_read_as_words():
    assert count(1, "message") == "1 message"
    assert count(12_000, "message") == "12,000 messages"
    assert rate(100, 2048, 2.0) == "50 messages/s, 1.0 KiB/s"


def test_pairs_split_at_the_first_equals_sign():
    assert parse_pairs(["a=1", "b=x=y", "c="], "--set") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(BadArgument, match="--set a is not NAME=VALUE"):
        parse_pairs(["a"], "--set")


def test_percentiles_of_latency():
    summary = summarize([float(number) for number in range(1000, 0, -1)])
    assert (summary.p50_ms, summary.p99_ms, summary.p999_ms, summary.max_ms) == (501, 991, 1000, 1000)
