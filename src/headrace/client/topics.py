"""Topics that the SDK itself needs."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.librdkafka import explain, log, made

_TIMEOUT_S = 30.0


def ensure(config: dict[str, Any], topic: str, like: str) -> None:
    """Make a topic with as many partitions as another, unless it is there. A broker that does not allow it may have
    made it, or make it when it is first written to: so that is no error."""
    admin = made(AdminClient, config)
    try:
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
        if topic in there:
            return
        partitions = len(there[like].partitions) if like in there else -1
        created = admin.create_topics([NewTopic(topic, partitions, replication_factor=-1)], request_timeout=_TIMEOUT_S)
        created[topic].result(_TIMEOUT_S)
    except TimeoutError:
        log.warning("the topic %s was not made: no broker answers at %s", topic, config["bootstrap.servers"])
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            log.warning("the topic %s was not made: %s", topic, explain(error, config["bootstrap.servers"]))
