"""Requests that no well-behaved client sends, and that a broker must answer all the same.

Each case is one request to a broker that holds what `prepare` makes. Names and ids that must not exist are the same on
every broker, so the answers of two brokers can be compared as they are.
"""

import time
from collections.abc import Iterator
from uuid import UUID

import odd_records
import odd_settings
import odd_topics
from odd_case import COMPACTED, NO_PRODUCER, TOPIC, Case, deletion
from tests.interop import batches, raw_client


def prepare(bootstrap: str) -> UUID:
    """Three topics, one with seven records of which two are deleted; the id of that one."""
    topic_id = raw_client.create_topic(bootstrap, TOPIC, 2)
    raw_client.create_topic(bootstrap, COMPACTED, 1, {"cleanup.policy": "compact"})
    raw_client.create_topic(bootstrap, "a_b.c", 1)
    with raw_client.Connection(bootstrap) as connection:
        raw_client.produce(connection, TOPIC, batches.batch([b"%d" % n for n in range(7)]))
        connection.call(raw_client.DELETE_RECORDS, 2, deletion(TOPIC, 0, 2))
        # Kafka hands out producer ids a moment after it has started.
        while (
            connection.call(raw_client.INIT_PRODUCER_ID, 4, NO_PRODUCER).error_code
            == raw_client.Error.coordinator_load_in_progress
        ):
            time.sleep(0.05)
    return topic_id


def cases(topic_id: UUID) -> Iterator[Case]:
    """All of them; topics are deleted last."""
    yield from odd_topics.create_topics()
    yield from odd_topics.create_partitions()
    yield from odd_topics.delete_records()
    yield from odd_settings.configs()
    yield from odd_settings.alter_configs()
    yield from odd_settings.security()
    yield from odd_settings.quotas()
    yield from odd_topics.log_dirs()
    yield from odd_topics.metadata(topic_id)
    yield from odd_records.offsets()
    yield from odd_records.produce()
    yield from odd_records.fetch(topic_id)
    yield from odd_records.producer_ids()
    yield from odd_topics.delete_topics(topic_id)
