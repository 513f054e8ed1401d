"""Changes to the subscriptions to metrics of clients, which are keys of the metadata store."""

from collections.abc import Callable, Mapping

from headrace.cluster import layout
from headrace.cluster.metadata import Metadata, SettingsEdit
from headrace.cluster.setting_changes import to_store
from headrace.cluster.store import DeleteKey, Put, Write
from headrace.config.client_metrics import CLIENT_METRICS_SETTINGS
from headrace.model.errors import PolicyViolation

MAX_SUBSCRIPTIONS = 100


async def alter_client_metrics(
    metadata: Metadata,
    name: str,
    edit: SettingsEdit,
    check: Callable[[Mapping[str, str]], object],
    *,
    validate_only: bool = False,
) -> None:
    """Change a subscription; one without settings is deleted. `check` raises `SettingsError` for invalid values."""

    async def attempt() -> None:
        image = metadata.image
        before = image.client_metrics.get(name, {})
        after = to_store(CLIENT_METRICS_SETTINGS, edit(before), image.feature_level, lambda row: row.default, check)
        if name not in image.client_metrics and after and len(image.client_metrics) >= MAX_SUBSCRIPTIONS:
            raise PolicyViolation(
                f"there are {MAX_SUBSCRIPTIONS} subscriptions to metrics of clients: delete one first"
            )
        if after == before or validate_only:
            return
        key = layout.CLIENT_METRICS + name
        write: Write = Put(key, layout.encode(after)) if after else DeleteKey(key)
        await metadata.commit([metadata.unchanged(key)], [write])

    await metadata.decide(attempt)
