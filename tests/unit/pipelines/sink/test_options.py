"""Options of a sink: what is wrong is named in one sentence."""

import pytest

from headrace.pipelines.sink.options import WrongOption, sink_options
from headrace.records.compression import Codec

HERE = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults() -> None:
    found = sink_options(HERE)
    assert (found.topic, found.is_exactly_once, found.codec) == (None, False, Codec.NONE)
    assert found.transaction_timeout_ms == 900_000


def test_names_are_of_any_case() -> None:
    found = sink_options(
        {**HERE, "TOPIC": "t", "Delivery": "Exactly-Once", "sinkid": "s", "COMPRESSION": "ZSTD", "batchBytes": "4096"}
        | {"transactionTimeout": "90s", "lostTransactions": "skip", "queryId": "q", "batchId": "4"}
        | {"checkpointLocation": "/somewhere"}
    )
    assert (found.topic, found.is_exactly_once, found.sink_id, found.codec) == ("t", True, "s", Codec.ZSTD)
    assert (found.transaction_timeout_ms, found.batch_bytes, found.skips_lost) == (90_000, 4096, True)
    assert (found.query_id, found.batch_id) == ("q", 4)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers is missing"),
        ({"topic": " "}, "option topic is empty"),
        ({"delivery": "twice"}, "delivery is one of at-least-once, exactly-once, not 'twice'"),
        ({"delivery": "exactly-once"}, "option sinkId is missing"),
        ({"delivery": "exactly-once", "sinkId": "a/b"}, "option sinkId has letters"),
        ({"compression": "rar"}, "compression is one of none, gzip"),
        ({"transactionTimeout": "soon"}, "transactionTimeout is a time such as"),
        ({"transactionTimeout": "0s"}, "transactionTimeout is a time such as"),
        ({"batchBytes": "12"}, "batchBytes is a whole number from 1024 on"),
        ({"lostTransactions": "ignore"}, "lostTransactions is one of fail, skip"),
        ({"queryId": "q"}, "queryId and batchId come together"),
        ({"batchId": "1"}, "queryId and batchId come together"),
        ({"queryId": "q", "batchId": "-1"}, "batchId is a whole number"),
        ({"sink_id": "s"}, "did you mean sinkId"),
        ({"kafka.linger.ms": "5"}, "no option kafka.linger.ms"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(WrongOption, match=words) as caught:
        sink_options({**HERE, **options})
    assert "\n" not in str(caught.value)
