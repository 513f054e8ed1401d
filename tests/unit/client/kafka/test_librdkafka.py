"""What librdkafka tells, as a user sees it."""

import logging

import pytest
from confluent_kafka import KafkaError

from headrace.client.kafka.librdkafka import ConnectionErrorLog, client_config


def test_an_outage_is_told_once_a_minute_in_a_sentence(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("headrace.client.kafka.librdkafka.time.monotonic", lambda: now_s[0])
    errors = ConnectionErrorLog("here:1")
    for _ in range(3):
        errors(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        errors(KafkaError(KafkaError._TRANSPORT))
    assert caplog.messages == ["no broker answers at here:1; the client tries again"]
    now_s[0] += 60
    errors(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert len(caplog.messages) == 2
    assert errors.last is not None
    assert errors.last[0] == "no broker answers at here:1"


def test_an_address_that_the_cluster_names_and_that_does_not_answer_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors = ConnectionErrorLog("localhost:9092")
    errors(KafkaError(KafkaError._TRANSPORT, "localhost:9092/0: Connect to ipv4#127.0.0.1:9092 failed"))
    errors(KafkaError(KafkaError._TRANSPORT, "broker-1:9092/1: Disconnected (after 20ms in state UP)"))
    errors(KafkaError(KafkaError._RESOLVE, "broker-1:9092/1: Failed to resolve 'broker-1:9092' (after 5ms in state)"))
    told = "no connection to broker-1:9092, which the cluster at localhost:9092 advertises for a broker: "
    assert caplog.messages == [f"{told}Failed to resolve 'broker-1:9092'; the client tries again"]


def test_what_a_user_has_to_mend_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    ConnectionErrorLog("here:1")(KafkaError(KafkaError._SSL, "certificate verify failed"))
    assert caplog.messages == ["a connection to here:1 failed: certificate verify failed; the client tries again"]


def test_librdkafka_s_own_lines_are_for_who_debugs(caplog: pytest.LogCaptureFixture) -> None:
    logger = client_config("here:1", "test", {})["logger"]
    with caplog.at_level(logging.DEBUG):
        logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "Connect failed")
    assert [(each.name, each.levelno) for each in caplog.records] == [("headrace.client.librdkafka", logging.DEBUG)]
