"""Where a broker's master keys come from: a setting (or its environment variable), a file, or a command."""

import os
import shlex
import subprocess
from pathlib import Path

from headrace.model.errors import SettingsError
from headrace.security.encryption.master_key import MasterKeys, parse_master_keys

SETTING = "encryption.master.key"
FILE = "encryption.master.key.file"
COMMAND = "encryption.master.key.command"

_COMMAND_TIMEOUT_S = 60.0
_ERROR_CHARACTERS = 300


def load_master_keys(text: str, file: str, command: str) -> MasterKeys | None:
    """The master keys of the one source that is set; None if none is. Blocking. Raises `SettingsError`."""
    given = [name for name, value in ((SETTING, text), (FILE, file), (COMMAND, command)) if value]
    if len(given) > 1:
        raise SettingsError(f"{' and '.join(given)} are both set: set one of them")
    if text:
        return parse_master_keys(text, SETTING)
    if file:
        return parse_master_keys(_read(Path(file)), f"{FILE}={file}")
    if command:
        return parse_master_keys(_run(command), f"the output of {COMMAND}")
    return None


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077 and os.name == "posix":
            raise SettingsError(f"{FILE}={path} may be read by other users: run chmod 600 {path}")
        return path.read_text("ascii")
    except OSError as error:
        raise SettingsError(f"{FILE}={path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{FILE}={path} is not text: write base64, not the raw bytes of the key") from None


def _run(command: str) -> str:
    """Run the command, without a shell, and return its output. Its stderr is shown if it fails, its output never."""
    try:
        arguments = shlex.split(command)
        done = subprocess.run(
            arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_TIMEOUT_S, check=False
        )
    except ValueError as error:
        raise SettingsError(f"{COMMAND} cannot be parsed: {error}") from None
    except OSError as error:
        raise SettingsError(f"{COMMAND} cannot be run: {error.strerror}: {arguments[0]}") from None
    except subprocess.TimeoutExpired:
        raise SettingsError(f"{COMMAND} did not end within {_COMMAND_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip()[-_ERROR_CHARACTERS:]
        raise SettingsError(f"{COMMAND} failed with exit code {done.returncode}: {reason or 'it printed no error'}")
    return done.stdout.decode("ascii", "replace")
