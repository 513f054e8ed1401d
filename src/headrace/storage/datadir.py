"""A data directory: identifies its owner, and locks it against use by another process."""

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

from headrace.model.errors import StartupError
from headrace.model.features import FIRST_LEVEL, LATEST_LEVEL
from headrace.model.ids import BrokerId
from headrace.runtime.disk import Disk
from headrace.storage.checkpoints import topic_id_to_text

META = "meta.properties"
LOCK = ".lock"

_NOT_FOREIGN = {LOCK, META, META + ".tmp", "lost+found", "security", "security.toml"}


class DataDir:
    """A directory that belongs to this broker, locked until `release`. Make one with `acquire`."""

    def __init__(
        self,
        path: Path,
        cluster_id: str,
        broker_id: BrokerId,
        lock: int = -1,
        *,
        directory_id: str = "",
        level: int = FIRST_LEVEL,
        is_new: bool = False,
    ) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self.directory_id = directory_id
        """Made with the directory: a broker that restarts with another one has lost its data."""
        self.level = level
        """The highest feature level of the data in the directory."""
        self._lock = lock
        self._is_new = is_new
        self._is_unused = False

    @staticmethod
    def cluster_of(path: Path, disk: Disk) -> str | None:
        """The cluster id of a directory; None if it is new. Writes and locks nothing."""
        try:
            data = disk.read_bytes(path / META)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StartupError(f"The data directory {path} cannot be used: {error.strerror}.") from error
        return DataDir._identify(path, data).cluster_id

    @classmethod
    def acquire(
        cls,
        path: Path,
        disk: Disk,
        *,
        broker_id: BrokerId,
        cluster_id: str | None = None,
        level: int = LATEST_LEVEL,
    ) -> "DataDir":
        """Lock a directory, new or existing, and mark it as a Headrace data directory.

        Without a `cluster_id` an existing directory keeps its id and a new one gets a new id. `level` is the feature
        level of a new one; an existing one keeps its level until `raise_level`. Raises `StartupError` for a directory
        that is in use, belongs to another program or another broker, is too new, or is not writable.
        """
        lock = -1
        is_new = is_locked = False
        try:
            is_new = cls._make(path)
            cls._refuse_foreign(path)
            lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            cls._lock_or_refuse(lock, path)
            is_locked = True
            if (path / META).exists():
                is_new = False
                found = cls._identify(path, disk.read_bytes(path / META))
                if cluster_id is not None and cluster_id != found.cluster_id:
                    raise StartupError(f"{path} belongs to cluster {found.cluster_id}, not to {cluster_id}.")
                if found.broker_id != broker_id:
                    raise StartupError(
                        f"{path} belongs to broker {found.broker_id}, not to {broker_id}: use another directory."
                    )
                whose = found
            else:
                whose = _Whose(cluster_id or topic_id_to_text(uuid4()), broker_id, level=level)
            if not whose.directory_id:
                # Also for a directory of an earlier version, which had no directory id.
                whose = replace(whose, directory_id=topic_id_to_text(uuid4()))
                disk.write_atomic(path / META, whose.to_text().encode())
        except BaseException as error:
            if is_new and is_locked:
                cls._remove_unused(path)
            elif is_new:
                # If another broker has taken the directory meanwhile, it is not empty.
                with suppress(OSError):
                    path.rmdir()
            if lock >= 0:
                os.close(lock)
            if isinstance(error, OSError):
                raise StartupError(f"The data directory {path} cannot be used: {error.strerror}.") from error
            raise
        return cls(
            path,
            whose.cluster_id,
            broker_id,
            lock,
            directory_id=whose.directory_id,
            level=whose.level,
            is_new=is_new,
        )

    def raise_level(self, level: int, disk: Disk) -> None:
        """Mark the directory for a feature level: versions that do not know it refuse the directory from now on."""
        if level > self.level:
            whose = _Whose(self.cluster_id, self.broker_id, self.directory_id, level)
            disk.write_atomic(self.path / META, whose.to_text().encode())
            self.level = level

    def leave_unused(self) -> None:
        """Let `release` remove a directory that was made for a broker that did not start.

        Only one that `acquire` has made and marked itself, under the lock that is still held, and that has no
        partition's folder: no acknowledged data is removed.
        """
        self._is_unused = True

    def release(self) -> None:
        if self._lock >= 0:
            if self._is_new and self._is_unused:
                self._remove_unused(self.path)
            os.close(self._lock)
            self._lock = -1

    @staticmethod
    def _remove_unused(path: Path) -> None:
        """Remove a directory and its files, unless there are folders in it."""
        with suppress(OSError):
            if not any(entry.is_dir() for entry in path.iterdir()):
                shutil.rmtree(path, ignore_errors=True)

    @staticmethod
    def _make(path: Path) -> bool:
        """Make the directory; False if it existed."""
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.is_dir():
                raise
            return False
        return True

    @staticmethod
    def _refuse_foreign(path: Path) -> None:
        """Refuse a directory of another program, before anything is written to it, the lock included."""
        names = {entry.name for entry in path.iterdir()}
        foreign = sorted(names - _NOT_FOREIGN)
        if foreign and META not in names:
            raise StartupError(f"{path} is not a Headrace data directory but has {foreign[0]} in it: use an empty one.")

    @staticmethod
    def _lock_or_refuse(lock: int, path: Path) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise StartupError(f"Another broker is using {path}: stop it or use another data directory.") from error

    @staticmethod
    def _identify(path: Path, data: bytes) -> "_Whose":
        lines = data.decode("utf-8", "replace").splitlines()
        fields = dict(line.partition("=")[::2] for line in lines if not line.startswith("#"))
        if fields.get("product") != "headrace":
            raise StartupError(f"{path} belongs to another program, see its {META}: use another data directory.")
        try:
            level, broker_id, cluster_id = int(fields["format"]), int(fields["broker.id"]), fields["cluster.id"]
        except (KeyError, ValueError):
            raise StartupError(f"{path / META} is damaged: restore it from a backup.") from None
        if level > LATEST_LEVEL:
            raise StartupError(
                f"{path} was written by a newer version of Headrace (feature level {level}, and this one knows levels "
                f"up to {LATEST_LEVEL}): start that version, or use another data directory."
            )
        return _Whose(cluster_id, BrokerId(broker_id), fields.get("directory.id", ""), level)


@dataclass(frozen=True, slots=True)
class _Whose:
    """The content of meta.properties."""

    cluster_id: str
    broker_id: BrokerId
    directory_id: str = ""
    level: int = FIRST_LEVEL
    """Stored as `format`, which 0.1 checks as well."""

    def to_text(self) -> str:
        return (
            f"product=headrace\nformat={self.level}\ncluster.id={self.cluster_id}\nbroker.id={self.broker_id}\n"
            f"directory.id={self.directory_id}\n"
        )
