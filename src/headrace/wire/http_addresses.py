"""Finds the addresses over HTTP of a cluster's brokers."""

from headrace.config.http_listeners import urls
from headrace.wire.cluster import Cluster


def http_addresses(cluster: Cluster) -> list[str]:
    """Those that the brokers say in their settings, which every client may ask for."""
    return [url for endpoint, listeners in cluster.http_listeners().items() for url in urls(listeners, endpoint.host)]
