"""Discovers the HTTP addresses of brokers from their settings.

librdkafka asks for all settings of a broker, which needs DESCRIBE_CONFIGS on a secured cluster. A client without that
permission asks for the one setting by a connection of its own, which every client may.
"""

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace.client.errors import ClientError, Unreachable
from headrace.client.kafka.librdkafka import create_client, explain
from headrace.config.credentials import Credentials
from headrace.config.http_listeners import LISTENERS, urls
from headrace.model.image import Endpoint

_TIMEOUT_S = 5.0


def find(config: dict[str, Any], queue: str, credentials: Credentials, what: str = "queues") -> list[str]:
    """The addresses of all brokers that answer, that of the queue's leader first: it need not ask another.

    `what` is looked for there, in the words of the errors.
    """
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
        endpoints = [Endpoint(each.host, each.port) for each in brokers]
        answers = _asked_for_one_setting(bootstrap, credentials, endpoints, what)
    found = [url for urls_of_broker in answers for url in urls_of_broker or ()]
    if not found:
        if None in answers:
            raise Unreachable(f"no broker at {bootstrap} says where it serves {what}: it may be starting or stopping")
        raise ClientError(f"no broker at {bootstrap} serves {what}: start one with http.listen, or give Client http=")
    return found


class _NotAllowed(Exception):
    """The client may not see the settings of brokers."""


def _asked_for_one_setting(
    bootstrap: str, credentials: Credentials, brokers: list[Endpoint], what: str
) -> list[list[str] | None]:
    """What each broker says to a client that may not see its other settings; None if it does not answer."""
    from headrace.wire import Cluster, Timeouts, WireError  # few clients need it

    timeouts = Timeouts(connect_s=_TIMEOUT_S, request_s=_TIMEOUT_S, patience_s=_TIMEOUT_S)
    try:
        with Cluster(bootstrap, timeouts=timeouts, credentials=credentials) as cluster:
            found = cluster.http_listeners()
    except WireError as error:
        raise ClientError(
            f"the brokers at {bootstrap} do not say where they serve {what}: {error}; give Client http= (HEADRACE_HTTP)"
        ) from None
    return [urls(found[each], each.host) if each in found else None for each in brokers]


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
