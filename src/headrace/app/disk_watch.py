"""Watches the room on the disk of the data directory, and slows producers down when there is little."""

import asyncio
import logging
from concurrent.futures import Executor
from pathlib import Path

from headrace.cluster.metadata import Metadata
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.runtime.volume import volume_size

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.5


async def watch_disk(data_dir: Path, quotas: BrokerQuotas, metadata: Metadata, workers: Executor) -> None:
    loop, disk = asyncio.get_running_loop(), quotas.disk
    problem = ""
    while True:
        was = disk.is_slowing, disk.is_refusing
        try:
            # A network file system may take its time.
            volume = await loop.run_in_executor(workers, volume_size, data_dir)
        except OSError as error:
            if str(error) != problem:
                log.warning("the free space of %s is unknown: %s", data_dir, error)
            problem = str(error)
        else:
            problem = ""
            settings = metadata.settings
            disk.update(
                volume.usable_bytes,
                volume.total_bytes,
                slow_below_bytes=settings.disk_slow_below_bytes,
                refuse_below_bytes=settings.disk_refuse_below_bytes,
            )
            quotas.disk_changed()
            if was != (disk.is_slowing, disk.is_refusing):
                _log_change(data_dir, volume.usable_bytes, quotas)
        await asyncio.sleep(_LOOK_EVERY_S)


def _log_change(data_dir: Path, free_bytes: int, quotas: BrokerQuotas) -> None:
    left = f"{free_bytes / (1 << 20):,.0f} MiB are left on the disk of {data_dir}"
    if quotas.disk.is_refusing:
        log.error("%s: producers are refused until there is room", left)
    elif quotas.disk.is_slowing:
        log.warning("%s: producers are slowed down until there is room", left)
    else:
        log.info("%s: producers are no longer slowed down", left)
