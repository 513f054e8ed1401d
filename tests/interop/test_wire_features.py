"""Features as ApiVersions tells of them and UpdateFeatures changes them."""

from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.model.features import FEATURE, LATEST_LEVEL

from . import raw_client, subject
from .raw_client import Error
from .subject import Subject

SOFTWARE = {"client_software_name": "wire", "client_software_version": "1"}
UPGRADE, SAFE_DOWNGRADE = 1, 2

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about the feature levels of Headrace")


def features(broker: Subject, version: int) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = connection.call(raw_client.API_VERSIONS, version, **SOFTWARE)
    assert answer.finalized_features_epoch >= 0
    return (
        {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
        {one.name: one.max_version_level for one in answer.finalized_features},
    )


def test_features_that_may_be_off_are_told_of_from_version_four_on(broker: Subject) -> None:
    """Java clients 3.3 to 3.7 ask with version 3, and refuse a broker that names a feature with the minimum 0."""
    supported, finalized = features(broker, 4)
    versions = {"share.version": 2, "streams.version": 1, "transaction.version": 2}
    assert supported == {FEATURE: (1, LATEST_LEVEL)} | {name: (0, version) for name, version in versions.items()}
    assert finalized == {FEATURE: LATEST_LEVEL} | versions
    supported, finalized = features(broker, 3)
    assert supported == {FEATURE: (1, LATEST_LEVEL)}
    assert finalized["transaction.version"] == 2


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("updates", "error", "says"),
    [
        ({FEATURE: LATEST_LEVEL}, Error.none, None),
        ({FEATURE: LATEST_LEVEL, "transaction.version": 2}, Error.none, None),
        ({FEATURE: LATEST_LEVEL + 1}, Error.invalid_update_version, "upgrade Headrace first"),
        ({FEATURE: 1}, Error.feature_update_failed, "cannot be lowered"),
        ({FEATURE: 0}, Error.invalid_update_version, "cannot be removed"),
        ({"transaction.version": 3}, Error.invalid_update_version, "from 0 to 2"),
        ({"share.version": 0}, Error.feature_update_failed, "cannot be chosen"),
        ({"kraft.version": 1}, Error.invalid_update_version, "there is no feature kraft.version"),
    ],
)
def test_an_update_is_made_or_refused_in_words(
    broker: Subject, version: int, updates: dict[str, int], error: Error, says: str | None
) -> None:
    body: dict[str, Any] = {
        "timeout": 10_000,
        "feature_updates": [
            {"feature": name, "max_version_level": level, "allow_downgrade": True, "upgrade_type": 3}
            for name, level in updates.items()
        ],
    }
    with raw_client.Connection(broker.bootstrap) as connection:
        answer = connection.call(raw_client.UPDATE_FEATURES, version, body)
    told = [answer] if version == 2 else answer.results
    assert {each.error_code for each in told} == {error}
    assert all(each.error_message is None if says is None else says in each.error_message for each in told)
    assert features(broker, 4)[1][FEATURE] == LATEST_LEVEL


def test_clients_that_are_told_of_transaction_version_one_are_served(broker: Subject) -> None:
    """Held back, the version is not told to clients, which then write transactions by the older protocol."""
    with raw_client.Connection(broker.bootstrap) as connection:

        def update(version: int, kind: int) -> Error:
            update = {"feature": "transaction.version", "max_version_level": version, "upgrade_type": kind}
            return connection.call(
                raw_client.UPDATE_FEATURES, 2, {"timeout": 10_000, "feature_updates": [update]}
            ).error_code

        epoch = connection.call(raw_client.API_VERSIONS, 4, **SOFTWARE).finalized_features_epoch
        assert update(1, UPGRADE) is Error.feature_update_failed
        assert update(1, SAFE_DOWNGRADE) is Error.none
        try:
            assert features(broker, 4)[1]["transaction.version"] == 1
            assert connection.call(raw_client.API_VERSIONS, 4, **SOFTWARE).finalized_features_epoch > epoch
            values = transact(broker, "held-back")
        finally:
            assert update(2, UPGRADE) is Error.none
        assert values == [b"committed"]
    assert features(broker, 4)[1]["transaction.version"] == 2


def transact(broker: Subject, topic: str) -> list[bytes | None]:
    """What a reader of committed messages gets after an aborted and a committed transaction."""
    raw_client.create_topic(broker.bootstrap, topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(60)
        end(60)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values = []
        while (message := consumer.poll(60)) is not None and message.error() is None:
            values.append(message.value())
        return values
    finally:
        consumer.close()
