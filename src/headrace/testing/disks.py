"""Disks for tests: one in memory that models power failures, and one that fails on demand.

`ModelDisk` tracks, besides the visible state, the durable state of the device: `sync_data` persists a file's bytes,
`sync_dir` a directory's names. Every primitive step (write, sync, rename, truncate, unlink …) calls the `hook` first,
which may raise: an `OSError` to inject a fault, `PowerLoss` to end the run there. `after_power_loss` and
`after_process_kill` then return the disk that a restarted broker would find; after a power loss it has a new boot id.

    disk = ModelDisk()
    disk.hook = stop_at(17)
    with suppress(PowerLoss):
        run_a_broker_on(disk)
    check(disk.after_power_loss(Random(seed)))
"""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from headrace.runtime.disk import Buffer, Disk, DiskFile, FileStamp

Hook = Callable[[str, Path], None]

_PAGE = 512


class PowerLoss(BaseException):
    """Ends the run, like a power failure. Not an `Exception`: no code may catch it and continue."""


class TornWrite(Exception):
    """Raised by a hook: write only this share of the bytes, then raise the error."""

    def __init__(self, share: float, error: BaseException) -> None:
        super().__init__(share, error)
        self.share = share
        self.error = error


def stop_at(number: int, *, torn_share: float = 0.5) -> Hook:
    """A hook that ends the run at the n-th step (the first is 1); a write then leaves a prefix of its bytes."""
    steps = 0

    def hook(step: str, path: Path) -> None:
        nonlocal steps
        steps += 1
        if steps >= number:
            raise TornWrite(torn_share, PowerLoss(f"{step} {path}")) if step == "write" else PowerLoss(f"{step} {path}")

    return hook


class _Inode:
    __slots__ = ("data", "durable", "modified", "number")

    def __init__(self, number: int, data: bytes | bytearray = b"", modified: int = 0) -> None:
        self.data = bytearray(data)
        self.durable = b""
        self.number = number
        self.modified = modified
        """Incremented by every write and truncation, like an mtime."""

    def sync(self) -> None:
        self.durable = bytes(self.data)


class ModelFile:
    def __init__(self, disk: "ModelDisk", path: Path, inode: _Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def append(self, buffers: Sequence[Buffer]) -> int:
        return self._disk.write(self.path, self._inode, b"".join(buffers))

    def read(self, position: int, length: int) -> bytes:
        return bytes(self._inode.data[position : position + length])

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        data = self.read(position, length)
        return data if len(data) == length else None

    def is_cached(self, position: int, length: int) -> bool:
        return True

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        return os.write(socket_fd, self.read(position, length))

    def disable_read_ahead(self) -> None: ...

    def read_ahead(self, position: int, length: int) -> None: ...

    def bring_in(self, position: int, length: int) -> int:
        return len(self.read(position, length))

    def has_any_cached(self, position: int, length: int) -> bool:
        return True

    def drop_cached(self, position: int, length: int) -> None: ...

    def reopened_in_order(self) -> "ModelFile":
        return ModelFile(self._disk, self.path, self._inode)

    def sync_data(self) -> None:
        self._disk.step("sync", self.path)
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._disk.step("truncate", self.path)
        self._inode.modified += 1
        data = self._inode.data
        if size > len(data):
            data.extend(bytes(size - len(data)))
        del data[size:]

    def size(self) -> int:
        return len(self._inode.data)

    def close(self) -> None: ...


_Change = tuple[str, Path, Path | None, _Inode | None]


class ModelDisk:
    """A file system in memory; see the module. The directory `root` exists from the start."""

    def __init__(self, root: Path = Path("/data"), *, room_bytes: int | None = None) -> None:
        self.root = root
        self.room_bytes = room_bytes
        """The capacity of all files together; a write beyond it fails with ENOSPC."""
        self.hook: Hook | None = None
        self.steps: list[tuple[str, str]] = []
        """Every step so far, with the file's name."""
        self.boots = 1
        self._inodes = 0
        self._files: dict[Path, _Inode] = {}
        self._folders: set[Path] = {root}
        self._durable_files: dict[Path, _Inode] = {}
        self._durable_folders: set[Path] = {root}
        self._changes: list[_Change] = []
        """Changes of names that are not durable yet, because their directory was not synced."""

    # For tests

    def after_process_kill(self) -> "ModelDisk":
        """The disk after `kill -9`: everything written is visible, and as durable as before."""
        disk = ModelDisk(self.root, room_bytes=self.room_bytes)
        disk.boots, disk._inodes = self.boots, self._inodes
        copies: dict[_Inode, _Inode] = {}

        def copy(inode: _Inode) -> _Inode:
            found = copies.get(inode)
            if found is None:
                found = copies[inode] = _Inode(inode.number, inode.data, inode.modified)
                found.durable = inode.durable
            return found

        disk._files = {path: copy(inode) for path, inode in self._files.items()}
        disk._durable_files = {path: copy(inode) for path, inode in self._durable_files.items()}
        disk._changes = [(*change[:3], None if change[3] is None else copy(change[3])) for change in self._changes]
        disk._folders, disk._durable_folders = set(self._folders), set(self._durable_folders)
        return disk

    def after_power_loss(self, random: Random | None = None) -> "ModelDisk":
        """The disk after a power failure: everything synced, and with `random` some of the unsynced changes.

        These are: the changes of names up to some point, and a prefix of each file's new bytes, in which whole pages
        may be missing (read as zeros); a truncation may be undone.
        """
        if random is None:
            return self._successor(self._durable_files, self._durable_folders, lambda inode: inode.durable)
        files, folders = dict(self._durable_files), set(self._durable_folders)
        for change in self._changes[: random.randint(0, len(self._changes))]:
            _apply(files, folders, change)
        return self._successor(files, folders, lambda inode: _survivor(inode, random))

    def contains(self, data: bytes) -> bool:
        """Whether these bytes are in any file."""
        return any(data in inode.data for inode in self._files.values())

    def damage(self, path: Path, position: int, data: bytes, *, is_seen: bool = True) -> None:
        """Overwrite bytes on the device: as another program does, or with `is_seen=False` as bit rot does."""
        inode = self._files[path]
        inode.modified += is_seen
        inode.data[position : position + len(data)] = data
        inode.durable = bytes(inode.data)

    def _successor(
        self, files: dict[Path, _Inode], folders: set[Path], content: Callable[[_Inode], bytes]
    ) -> "ModelDisk":
        disk = ModelDisk(self.root, room_bytes=self.room_bytes)
        disk.boots, disk._inodes = self.boots + 1, self._inodes
        for path, inode in files.items():
            # The mtime may be durable although the change is not.
            copy = _Inode(inode.number, content(inode), inode.modified)
            copy.sync()
            disk._files[path] = disk._durable_files[path] = copy
        disk._folders, disk._durable_folders = set(folders), set(folders)
        return disk

    # Steps

    def step(self, what: str, path: Path) -> None:
        self.steps.append((what, path.name))
        if self.hook is not None:
            self.hook(what, path)

    def write(self, path: Path, inode: _Inode, data: bytes) -> int:
        inode.modified += 1
        try:
            self.step("write", path)
        except TornWrite as torn:
            inode.data += data[: int(len(data) * torn.share)]
            raise torn.error from None
        if self.room_bytes is not None:
            room = self.room_bytes - sum(len(other.data) for other in self._files.values())
            if room < len(data):
                inode.data += data[: max(0, room)]
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        inode.data += data
        return len(data)

    def _change(self, what: str, path: Path, target: Path | None = None, inode: _Inode | None = None) -> None:
        self.step(what, path)
        change = (what, path, target, inode)
        _apply(self._files, self._folders, change)
        self._changes.append(change)

    def _new_inode(self) -> _Inode:
        self._inodes += 1
        return _Inode(self._inodes)

    # Disk

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if path not in self._files:
            if not create or path.parent not in self._folders:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            self._change("create", path, None, self._new_inode())
        return ModelFile(self, path, self._files[path])

    def open_read_only(self, path: Path) -> DiskFile:
        return self.open(path)

    def read_bytes(self, path: Path) -> bytes:
        file = self.open(path)
        return file.read(0, file.size())

    def files(self, path: Path) -> dict[str, int]:
        return {name.name: len(inode.data) for name, inode in self._files.items() if name.parent == path}

    def folders(self, path: Path) -> list[str]:
        return [folder.name for folder in self._folders if folder.parent == path and folder != path]

    def stamp(self, path: Path) -> FileStamp:
        inode = self._files.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return FileStamp(len(inode.data), inode.modified, inode.number)

    def boot_id(self) -> str:
        return f"boot {self.boots}"

    def write_atomic(self, path: Path, data: bytes) -> None:
        temporary, inode = self._write_temporary(path, data)
        self.step("sync", temporary)
        inode.sync()
        self.rename(temporary, path)

    def write_cache(self, path: Path, data: bytes) -> None:
        temporary, _ = self._write_temporary(path, data)
        self._change("rename", temporary, path)

    def _write_temporary(self, path: Path, data: bytes) -> tuple[Path, _Inode]:
        temporary = path.with_name(path.name + ".tmp")
        if path.parent not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        inode = self._new_inode()
        self._change("create", temporary, None, inode)
        self.write(temporary, inode, data)
        return temporary, inode

    def rename(self, source: Path, target: Path, *, sync: bool = True) -> None:
        if source not in self._files and source not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(source))
        self._change("rename", source, target)
        if sync:
            self.sync_dir(target.parent)

    def link(self, source: Path, target: Path) -> None:
        if target not in self._files:
            self._change("create", target, None, self._files[source])

    def exchange(self, one: Path, other: Path) -> None:
        self._change("exchange", one, other)
        self.sync_dir(one.parent)
        self.sync_dir(other.parent)

    def unlink(self, path: Path) -> None:
        if path in self._files:
            self._change("unlink", path)

    def make_dir(self, path: Path) -> None:
        if path not in self._folders:
            self._change("make", path)
        self.sync_dir(path.parent)

    def remove_tree(self, path: Path) -> None:
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        for file in [file for file in self._files if path in file.parents]:
            self._change("unlink", file)
        for folder in sorted((f for f in self._folders if path in f.parents), key=lambda f: -len(f.parts)):
            self._change("remove", folder)
        self._change("remove", path)

    def sync_dir(self, path: Path) -> None:
        self.step("sync-dir", path)
        rest = []
        for change in self._changes:
            if change[1].parent == path:
                _apply(self._durable_files, self._durable_folders, change)
            else:
                rest.append(change)
        self._changes = rest

    def free_bytes(self, path: Path) -> int:
        used = sum(len(inode.data) for inode in self._files.values())
        return 2**40 if self.room_bytes is None else max(0, self.room_bytes - used)


def _apply(files: dict[Path, _Inode], folders: set[Path], change: _Change) -> None:
    what, path, target, inode = change
    if what == "create" and inode is not None:
        files[path] = inode
    elif what == "make":
        folders.add(path)
    elif what == "unlink":
        files.pop(path, None)
    elif what == "remove":
        folders.discard(path)
    elif what == "exchange" and target is not None:
        aside = path.with_name(path.name + ".exchanged")
        for source, goal in ((path, aside), (target, path), (aside, target)):
            _apply(files, folders, ("rename", source, goal, None))
    elif what == "rename" and target is not None:
        if path in files:
            files[target] = files.pop(path)
        elif path in folders:
            folders.remove(path)
            folders.add(target)
            for file in [file for file in files if path in file.parents]:
                files[target / file.relative_to(path)] = files.pop(file)


def _survivor(inode: _Inode, random: Random) -> bytes:
    """A possible durable content of a file: the synced bytes, and any part of the later ones."""
    synced, data = inode.durable, bytes(inode.data)
    if data[: len(synced)] != synced:
        # Truncated (and perhaps written to) since the last sync: the truncation may be durable or not.
        return data if random.random() < 0.5 else synced
    found, first = bytearray(data[: random.randint(len(synced), len(data))]), len(synced)
    if len(found) > first and random.random() < 0.3:
        for page in range(first - first % _PAGE, len(found), _PAGE):
            if random.random() < 0.3:
                start = max(first, page)
                found[start : page + _PAGE] = bytes(len(found[start : page + _PAGE]))
    return bytes(found)


class FaultyFile:
    """A file of a `FaultyDisk`."""

    def __init__(self, disk: "FaultyDisk", file: DiskFile) -> None:
        self.path = file.path
        self._disk = disk
        self._file = file

    def append(self, buffers: Sequence[Buffer]) -> int:
        try:
            self._disk.ask("write", self.path)
        except TornWrite as torn:
            data = b"".join(buffers)
            self._file.append((data[: int(len(data) * torn.share)],))
            raise torn.error from None
        return self._file.append(buffers)

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(position, buffer)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        return self._file.read_cached(position, length)

    def is_cached(self, position: int, length: int) -> bool:
        return self._file.is_cached(position, length)

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        return self._file.send_to(socket_fd, position, length)

    def disable_read_ahead(self) -> None:
        self._file.disable_read_ahead()

    def read_ahead(self, position: int, length: int) -> None:
        self._file.read_ahead(position, length)

    def bring_in(self, position: int, length: int) -> int:
        return self._file.bring_in(position, length)

    def has_any_cached(self, position: int, length: int) -> bool:
        return self._file.has_any_cached(position, length)

    def drop_cached(self, position: int, length: int) -> None:
        self._file.drop_cached(position, length)

    def reopened_in_order(self) -> "FaultyFile":
        return FaultyFile(self._disk, self._file.reopened_in_order())

    def sync_data(self) -> None:
        self._disk.ask("sync", self.path)
        self._file.sync_data()

    def truncate(self, size: int) -> None:
        self._disk.ask("truncate", self.path)
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class FaultyDisk:
    """Wraps a disk, such as a real one: its operations call a hook first, which may raise or end the process."""

    def __init__(self, disk: Disk, hook: Hook | None = None) -> None:
        self._disk = disk
        self.hook = hook

    def ask(self, what: str, path: Path) -> None:
        if self.hook is not None:
            self.hook(what, path)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if create:
            self.ask("create", path)
        return FaultyFile(self, self._disk.open(path, create=create))

    def open_read_only(self, path: Path) -> DiskFile:
        return FaultyFile(self, self._disk.open_read_only(path))

    def read_bytes(self, path: Path) -> bytes:
        return self._disk.read_bytes(path)

    def files(self, path: Path) -> dict[str, int]:
        return self._disk.files(path)

    def folders(self, path: Path) -> list[str]:
        return self._disk.folders(path)

    def stamp(self, path: Path) -> FileStamp:
        return self._disk.stamp(path)

    def boot_id(self) -> str:
        return self._disk.boot_id()

    def write_atomic(self, path: Path, data: bytes) -> None:
        self._ask_to_write(path, data)
        self._disk.write_atomic(path, data)

    def write_cache(self, path: Path, data: bytes) -> None:
        self._ask_to_write(path, data)
        self._disk.write_cache(path, data)

    def _ask_to_write(self, path: Path, data: bytes) -> None:
        try:
            self.ask("write", path)
        except TornWrite as torn:
            temporary = self._disk.open(path.with_name(path.name + ".tmp"), create=True)
            temporary.append((data[: int(len(data) * torn.share)],))
            temporary.close()
            raise torn.error from None

    def rename(self, source: Path, target: Path, *, sync: bool = True) -> None:
        self.ask("rename", source)
        self._disk.rename(source, target, sync=sync)

    def link(self, source: Path, target: Path) -> None:
        self.ask("link", target)
        self._disk.link(source, target)

    def exchange(self, one: Path, other: Path) -> None:
        self.ask("exchange", one)
        self._disk.exchange(one, other)

    def unlink(self, path: Path) -> None:
        self.ask("unlink", path)
        self._disk.unlink(path)

    def make_dir(self, path: Path) -> None:
        self.ask("make", path)
        self._disk.make_dir(path)

    def remove_tree(self, path: Path) -> None:
        self.ask("remove", path)
        self._disk.remove_tree(path)

    def sync_dir(self, path: Path) -> None:
        self.ask("sync-dir", path)
        self._disk.sync_dir(path)

    def free_bytes(self, path: Path) -> int:
        return self._disk.free_bytes(path)
