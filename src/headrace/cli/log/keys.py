"""The ciphers with which `headrace log dump` decrypts: master keys from a broker's settings, data keys from its
metadata store."""

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

from headrace.cluster.layout_keys import DATA_KEYS, decode_data_keys, topic_id_of
from headrace.cluster.store_selection import METADATA_FILE, open_store
from headrace.config.broker import BrokerSettings
from headrace.config.load import load_settings
from headrace.model.data_keys import TopicDataKeys
from headrace.model.errors import DataKeyMissing, HeadraceError
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import OsDisk
from headrace.security.encryption.data_keys import unwrap
from headrace.security.encryption.key_source import load_master_keys
from headrace.storage.checkpoints import read_partition_metadata
from headrace.storage.encryption import LogCipher
from headrace.storage.inspect import LogFolder

_ADVICE = (
    "name the broker's settings with --config FILE, or set HEADRACE_ENCRYPTION_MASTER_KEY, "
    "HEADRACE_ENCRYPTION_MASTER_KEY_FILE or HEADRACE_ENCRYPTION_MASTER_KEY_COMMAND"
)


class FolderCiphers:
    """The cipher of each partition's folder. Nothing is loaded until the first encrypted batch."""

    def __init__(self, config_file: Path | None) -> None:
        self._config_file = config_file
        self._ciphers: dict[Path, LogCipher | str] = {}

    def cipher_of(self, log: LogFolder) -> LogCipher:
        """The cipher of a folder; `DataKeyMissing` says what is missing."""
        if log.path not in self._ciphers:
            try:
                self._ciphers[log.path] = self._load(log)
            except HeadraceError as error:
                self._ciphers[log.path] = str(error)
        found = self._ciphers[log.path]
        if isinstance(found, str):
            raise DataKeyMissing(found)
        return found

    def _load(self, log: LogFolder) -> LogCipher:
        settings = load_settings(environment=os.environ, config_file=self._config_file)
        master = load_master_keys(
            settings.encryption_master_key,
            settings.encryption_master_key_file,
            settings.encryption_master_key_command,
        )
        if master is None:
            raise DataKeyMissing(f"the batch is encrypted: {_ADVICE}")
        topic, partition = log.topic_partition
        topic_id = read_partition_metadata(OsDisk(), log.path)
        if topic_id is None or partition is None:
            raise DataKeyMissing(f"the batch is encrypted, and {log.path} does not say of which topic")
        stored = _data_keys(settings, log.path.parent).get(topic_id)
        if stored is None:
            raise DataKeyMissing(f"the batch is encrypted, and the metadata has no data key of the topic {topic}")
        return LogCipher(unwrap(stored, topic_id, master), topic, topic_id, partition, encrypts=False)


def _data_keys(settings: BrokerSettings, data_dir: Path) -> Mapping[UUID, TopicDataKeys]:
    """All data keys in the metadata store of a data directory."""
    records = asyncio.run(_from_etcd(settings)) if settings.etcd_endpoints else _from_file(data_dir / METADATA_FILE)
    return {topic_id_of(key): decode_data_keys(key, value) for key, value in records.items()}


async def _from_etcd(settings: BrokerSettings) -> dict[str, bytes]:
    store = await open_store(settings, Path(settings.data_dir), SystemClock())
    try:
        snapshot = await store.snapshot(DATA_KEYS)
        return {key: item.value for key, item in snapshot.items.items()}
    finally:
        await store.close()


def _from_file(path: Path) -> dict[str, bytes]:
    """The records in a SQLite file. A copy is read: a running broker has locked the file itself."""
    if not path.exists():
        raise DataKeyMissing(f"{path} with the data keys is missing; in a cluster, {_ADVICE}, with etcd.endpoints")
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        try:
            connection = sqlite3.connect(copy)
            try:
                rows = connection.execute(
                    "SELECT key, value FROM items WHERE substr(key, 1, ?) = ?", (len(DATA_KEYS), DATA_KEYS)
                ).fetchall()
            finally:
                connection.close()
        except sqlite3.DatabaseError as error:
            raise DataKeyMissing(f"{path} with the data keys cannot be read: {error}") from None
    return dict(rows)
