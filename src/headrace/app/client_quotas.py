"""Client quotas of this broker, in force as soon as the image or a setting changes."""

from headrace.cluster.metadata import Metadata
from headrace.config.broker import BrokerSettings
from headrace.model.image import ClusterImage
from headrace.quotas.accounts import QuotaWindows
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.quotas.rate import RateWindows
from headrace.runtime.clock import Clock


def client_quotas(metadata: Metadata, clock: Clock) -> BrokerQuotas:
    """The quotas of the cluster, as they are now and at any later time."""
    quotas = BrokerQuotas(_windows(metadata.boot_settings))
    listeners_per_s = {
        each.name: each.connections_per_s
        for each in metadata.boot_settings.kafka_listeners
        if each.connections_per_s is not None
    }
    connections_per_s = 0

    def apply(old: ClusterImage | None, image: ClusterImage) -> None:
        nonlocal connections_per_s
        wanted = metadata.settings.max_connection_creation_rate
        if old is None or old.quotas is not image.quotas or wanted != connections_per_s:
            connections_per_s = wanted
            quotas.update(image.quotas, wanted, listeners_per_s, int(clock.monotonic_ms()))

    apply(None, metadata.image)
    metadata.subscribe(apply)
    return quotas


def _windows(settings: BrokerSettings) -> QuotaWindows:
    return QuotaWindows(
        RateWindows(settings.quota_window_num, settings.quota_window_size_seconds * 1000),
        RateWindows(settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000),
    )
