"""Finds the addresses over HTTP of a cluster's brokers."""

from headrace.config.http_listeners import LISTENERS, urls
from headrace.wire.cluster import Cluster
from headrace.wire.settings import ConfigResource


def http_addresses(cluster: Cluster) -> list[str]:
    """Those that the brokers say in their settings, which needs DESCRIBE_CONFIGS on the cluster; else `Refused`."""
    found: list[str] = []
    for number, node in cluster.describe().brokers.items():
        if not node.is_fenced:
            settings = {each.name: each.value for each in cluster.settings_of(ConfigResource.BROKER, str(number))}
            found += urls(settings.get(LISTENERS) or "", node.endpoint.host)
    return found
