"""The files of a data directory that `headrace secure` writes and a broker reads.

security.toml               settings that take precedence over all others: a secured broker stays secured
security/                   certificates, keys, and the password of brokers among themselves
security/initial-access.json   users, access keys and ACLs to create at the next start, without any password
running.json                the running broker: its process id and addresses; removed when it stops
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from headrace.model.acls import Acl
from headrace.model.errors import SettingsError, StartupError
from headrace.model.users import AccessKey, User

SECURITY_FOLDER = "security"
INITIAL_ACCESS = "initial-access.json"
RUNNING = "running.json"


class InitialAccess(msgspec.Struct, frozen=True):
    """What a broker creates at its next start. A user that exists is left as it is."""

    users: Sequence[User] = ()
    access_keys: Sequence[AccessKey] = ()
    acls: Sequence[Acl] = ()


class RunningBroker(msgspec.Struct, frozen=True):
    """How to reach a running broker on its own machine."""

    pid: int
    broker_id: int
    listeners: dict[str, str]
    """PROTOCOL://HOST:PORT by name, as bound."""
    http: str
    is_in_cluster: bool
    registry_port: int = 0
    """The port of the registry's own listener; 0 if it has none."""


def write_initial_access(folder: Path, access: InitialAccess) -> None:
    write_private(folder / INITIAL_ACCESS, msgspec.json.encode(access))


def read_initial_access(data_dir: Path) -> InitialAccess | None:
    path = data_dir / SECURITY_FOLDER / INITIAL_ACCESS
    try:
        return msgspec.json.decode(path.read_bytes(), type=InitialAccess)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise StartupError(f"{path} cannot be read, run headrace secure again: {error}") from None


def forget_initial_access(data_dir: Path) -> None:
    (data_dir / SECURITY_FOLDER / INITIAL_ACCESS).unlink(missing_ok=True)


def write_running(data_dir: Path, running: RunningBroker) -> None:
    """Best effort: without it `headrace secure` cannot find the broker, and nothing else is affected."""
    with suppress(OSError):
        write_private(data_dir / RUNNING, msgspec.json.encode(running))


def forget_running(data_dir: Path) -> None:
    with suppress(OSError):
        (data_dir / RUNNING).unlink(missing_ok=True)


def running_broker(data_dir: Path) -> RunningBroker | None:
    """The broker that uses a data directory now; None if none does."""
    try:
        running = msgspec.json.decode((data_dir / RUNNING).read_bytes(), type=RunningBroker)
        os.kill(running.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return running


def write_private(path: Path, data: bytes) -> None:
    """Replace a file as a whole; only its owner can read it."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from None
