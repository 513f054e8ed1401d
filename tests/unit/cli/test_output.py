import pytest

from headrace.cli.bench.run import summarize
from headrace.cli.errors import BadArgument
from headrace.cli.options import parse_pairs
from headrace.cli.output import count, done_in, human_bytes, human_duration, per_time, rate, setting_text, table


def test_sizes_have_units():
    assert [human_bytes(size) for size in (0, 1023, 1536, 5 * 1024**3, 2 * 1024**5)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "2.0 PiB",
    ]
    assert human_bytes(1024**2 - 1) == "1.0 MiB"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0124, "12 ms"),
        (0.9996, "1.0 s"),
        (4.52, "4.5 s"),
        (59.6, "60 s"),
        (300, "5 min"),
        (9000, "2.5 h"),
        (604_800, "7 days"),
        (98_642_268, "3.1 years"),
    ],
)
def test_a_time_has_the_unit_that_fits(seconds, words):
    assert human_duration(seconds) == words


def test_one_message_has_no_speed_and_few_have_one_that_says_something():
    assert done_in("message", 1, 20, 0.531) == "1 message in 531 ms"
    assert done_in("message", 4, 40, 2.0) == "4 messages in 2.0 s (2.0 messages/s, 20 B/s)"
    assert done_in("message", 2, 10, 86_400) == "2 messages in 24.0 h (0.1 messages/h)"
    assert per_time(98_642_268, 60) == "1,644,038/s"


def test_a_setting_says_what_it_amounts_to():
    assert setting_text("retention.ms", "604800000") == "604800000 (7 days)"
    assert setting_text("segment.bytes", 1073741824) == "1073741824 (1.0 GiB)"
    assert setting_text("retention.bytes", "-1") == "-1"
    assert setting_text("flush.ms", str(2**63 - 1)) == str(2**63 - 1)
    assert setting_text("cleanup.policy", "delete") == "delete"


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


def test_a_table_shows_text_in_brackets_as_it_is(capsys):
    table("[/title]", [("REASON", "left")], [("pip install 'headrace[spark]'",), ("[/none] of [bold] it",)])
    printed = capsys.readouterr().out
    for text in ("[/title]", "'headrace[spark]'", "[/none] of [bold] it"):
        assert text in printed
