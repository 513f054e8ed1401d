"""The options of the data source: what they mean, and the sentence for each that is wrong."""

import json

import pytest

from headrace.pipelines.source.offsets import EARLIEST, LATEST
from headrace.pipelines.source.options import OffsetBound, OptionError, SourceOptions, parse_source_options

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def stream(**options: str) -> SourceOptions:
    return parse_source_options({**BASE, **options}, streaming=True)


def batch(**options: str) -> SourceOptions:
    return parse_source_options({**BASE, **options}, streaming=False)


def test_what_holds_when_nothing_is_said() -> None:
    options = stream()
    assert options.starting == OffsetBound(all_at=LATEST, option="startingOffsets")
    assert options.fail_on_data_loss
    assert options.read_committed, "what was taken back is not read"
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert (options.max_offsets, options.min_offsets, options.max_bytes) == (None, None, None)
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert batch().starting.all_at == EARLIEST
    assert batch().ending.all_at == LATEST


def test_names_are_of_any_case() -> None:
    options = parse_source_options(
        {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBEPATTERN": "x.*", "MaxOffsetsPerTrigger": "5"}, streaming=True
    )
    assert (options.bootstrap, options.subscription.pattern, options.max_offsets) == ("a:1", "x.*", 5)


def test_one_time_for_all_comes_before_the_others() -> None:
    options = stream(
        startingTimestamp="1000", startingOffsetsByTimestamp='{"orders": {"0": 2000}}', startingOffsets="earliest"
    )
    assert options.starting == OffsetBound(all_at=1000, is_time=True, option="startingTimestamp")
    options = stream(startingOffsetsByTimestamp='{"orders": {"0": 2000}}', startingOffsets="earliest")
    assert options.starting.by_partition == {("orders", 0): 2000}
    assert options.starting.is_time


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("10k", 10_240), ("2 MiB", 2 << 20), ("1gb", 1 << 30), ("5B", 5)]
)
def test_sizes(text: str, size: int) -> None:
    assert stream(maxBytesPerTrigger=text).max_bytes == size


@pytest.mark.parametrize(("text", "ms"), [("15m", 900_000), ("90s", 90_000), ("2 hours", 7_200_000), ("5ms", 5)])
def test_durations(text: str, ms: int) -> None:
    assert stream(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_groups_for_lag() -> None:
    assert stream().commit_group == ""
    assert stream(commitGroup="etl").commit_group == "etl"
    assert stream(**{"commitGroup": "true", "kafka.group.id": "g"}).commit_group == "g"
    assert stream(commitGroup="false").commit_group == ""
    assert stream(groupIdPrefix="mine").client_id == "mine"


def test_what_only_tunes_a_java_consumer_is_let_through() -> None:
    stream(**{"kafka.max.poll.records": "500", "fetchOffset.numRetries": "3", "kafkaConsumer.pollTimeoutMs": "120000"})


def test_patterns_take_no_internal_topics() -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribePattern": ".*offsets"}
    subscription = parse_source_options(given, streaming=True).subscription
    assert subscription.matches("my-offsets", is_internal=False)
    assert not subscription.matches("__consumer_offsets", is_internal=True)
    assert not subscription.matches("offsets-2", is_internal=False)


WRONG_IN_STREAMS = [
    ({"startingOfsets": "earliest"}, "there is no option startingofsets for reading; did you mean startingOffsets?"),
    ({"nonsense": "1"}, "there is no option nonsense for reading"),
    ({"path": "x"}, "not load(path)"),
    ({"topic": "x"}, "topic is for writing"),
    ({"bootstrap.servers": "x"}, "its name is kafka.bootstrap.servers"),
    ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets sets where to start"),
    ({"kafka.sasl.mechanism": "PLAIN"}, "the options user, password, tls"),
    ({"kafka.security.protocol": "SSL"}, "the options user, password, tls"),
    ({"assign": '{"orders": [0]}'}, "subscribe and assign are given"),
    ({"startingOffsets": "now"}, "cannot be 'now': write latest or earliest"),
    ({"startingOffsets": '{"orders": {"0": -3}}'}, "-3 for orders-0 is not a number from -2 on"),
    ({"startingOffsets": '{"orders": {"x": 1}}'}, "'x' of topic 'orders' is not a partition"),
    ({"startingOffsets": '{"orders": 1}'}, "the topic 'orders' has no partitions"),
    ({"startingOffsets": '{"orders": '}, "is not JSON"),
    ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
    ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "is not a number from 0 on"),
    ({"startingOffsetsByTimestampStrategy": "guess"}, "write error or latest"),
    ({"endingOffsets": "latest"}, "a stream has no end"),
    ({"endingTimestamp": "5"}, "a stream has no end"),
    ({"failOnDataLoss": "maybe"}, "write true or false"),
    ({"maxOffsetsPerTrigger": "0"}, "write a number above 0"),
    ({"minPartitions": "many"}, "write a number above 0"),
    ({"maxBytesPerTrigger": "10 parsecs"}, "such as 10485760 or 10m"),
    ({"maxTriggerDelay": "soon"}, "such as 15m"),
    ({"isolation": "serializable"}, "write read_committed or read_uncommitted"),
    ({"columns": "value,price"}, "names 'price'"),
    ({"columns": "value,value"}, "names 'value' twice"),
    ({"commitGroup": "true"}, "set kafka.group.id"),
    ({"subscribe": " , "}, "names no topic"),
]


@pytest.mark.parametrize(
    ("options", "sentence"), WRONG_IN_STREAMS, ids=[str(options) for options, _ in WRONG_IN_STREAMS]
)
def test_mistakes(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        stream(**options)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "cannot be 'latest': write earliest, or JSON"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot be -1 for orders-0 here"),
        ({"endingOffsets": "earliest"}, "cannot be 'earliest': write latest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot be -2 for orders-0 here"),
    ],
)
def test_mistakes_in_batches(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        batch(**options)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "t"}, "kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "a:1"}, "none is given"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": "("}, "is not a regular expression"),
        ({"kafka.bootstrap.servers": "a:1", "subscribePattern": ""}, "it matches no topic"),
        ({"kafka.bootstrap.servers": "a:1", "assign": json.dumps({"t": "0"})}, "are not a list of numbers"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "{}"}, "no partition is named"),
        ({"kafka.bootstrap.servers": "a:1", "assign": "[]"}, "is not a JSON object"),
    ],
)
def test_what_to_read_is_said_once(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_source_options(options, streaming=True)
    assert sentence in str(caught.value)
