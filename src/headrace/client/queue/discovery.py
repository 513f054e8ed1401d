"""Discovers the HTTP addresses of brokers from their settings, which needs DESCRIBE_CONFIGS on a secured cluster."""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.client.errors import ClientError, Unreachable
from headrace.client.kafka.librdkafka import create_client, explain
from headrace.config.http_listeners import LISTENERS, urls

_TIMEOUT_S = 5.0


def find(config: dict[str, Any], queue: str) -> list[str]:
    """The addresses of all brokers that answer, that of the queue's leader first: it need not ask another."""
    bootstrap = config["bootstrap.servers"]
    admin = create_client(AdminClient, config)
    try:
        # Not asked for by its name: that could create it.
        cluster = admin.list_topics(timeout=_TIMEOUT_S)
    except KafkaException as failure:
        raise Unreachable(explain(failure.args[0], bootstrap)) from None
    topic = cluster.topics.get(queue)
    leader = topic.partitions[0].leader if topic is not None and 0 in topic.partitions else -1
    brokers = sorted(cluster.brokers.values(), key=lambda each: (each.id != leader, each.id))
    asked = [(each.host, _asked(admin, each.id)) for each in brokers]
    try:
        answers = [_listeners(future, host) for host, future in asked]
    except _NotAllowed:
        raise ClientError(
            f"this user may not ask the brokers at {bootstrap} where they serve queues, which needs DESCRIBE_CONFIGS "
            "on the cluster: give Client http= (HEADRACE_HTTP)"
        ) from None
    found = [url for urls_of_broker in answers for url in urls_of_broker or ()]
    if not found:
        if None in answers:
            raise Unreachable(f"no broker at {bootstrap} says where it serves queues: it may be starting or stopping")
        raise ClientError(f"no broker at {bootstrap} serves queues: start one with http.listen, or give Client http=")
    return found


class _NotAllowed(Exception):
    """The client may not see the settings of brokers."""


def _asked(admin: AdminClient, broker_id: int) -> Any:
    resource = ConfigResource(ResourceType.BROKER, str(broker_id))
    return admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource]


def _listeners(future: Any, host: str) -> list[str] | None:
    """What a broker says; None if it does not answer."""
    try:
        entry = future.result(_TIMEOUT_S + 1).get(LISTENERS)
    except KafkaException as failure:
        if failure.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            raise _NotAllowed from None
        return None
    except TimeoutError:
        return None
    return urls(entry.value or "", host) if entry is not None else []
