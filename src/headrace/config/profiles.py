"""Profiles of clients: named connections in `~/.config/headrace/config.toml`.

    [profiles.prod]
    bootstrap = "broker-1.example.org:9093,broker-2.example.org:9093"
    user = "alice"
    password = "${PROD_PASSWORD}"           # or password_command = "pass show headrace/prod"
    ca_file = "prod-ca.pem"                 # relative to the file's folder

A profile with a password as text, in a file that other users can read, is logged as a warning.
"""

import functools
import logging
import os
import re
import shlex
import stat
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.config.settings import did_you_mean
from headrace.model.errors import SettingsError

log = logging.getLogger(__name__)

FILES = ("ca_file", "cert_file", "key_file")
SECRETS = ("password", "token", "key_password", "access_key")
COMMANDS = ("password_command", "token_command")
KEYS = ("bootstrap", "http", "user", "mechanism", "tls", "verify_hostname", *FILES, *SECRETS, *COMMANDS)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_COMMAND_TIMEOUT_S = 30.0


def profiles_file(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CONFIG_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".config")
    return Path(base) / "headrace" / "config.toml"


def read_profile(name: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """The keys of a profile, with `${NAME}` replaced from the environment. `SettingsError` if there is none."""
    file = profiles_file(environment)
    profiles = _read(file).get("profiles")
    profiles = profiles if isinstance(profiles, dict) else {}
    found = profiles.get(name)
    if not isinstance(found, dict):
        hint = did_you_mean(name, profiles) or f": write [profiles.{name}] there"
        raise SettingsError(f"{file} has no profile {name}{hint}")
    where = f"{file}: [profiles.{name}]"
    texts = {key: _value(where, key, value, environment) for key, value in found.items()}
    _check_secrets(file, where, found)
    for key in FILES:
        if texts.get(key):
            texts[key] = str(file.parent / Path(str(texts[key])).expanduser())
    return texts


def expanded(text: str, environment: Mapping[str, str], where: str) -> str:
    """`text` with each `${NAME}` and `${NAME:-default}` replaced from the environment."""

    def replaced(found: re.Match[str]) -> str:
        value = environment.get(found[1], found[2])
        if value is None:
            raise SettingsError(f"{where}: the environment variable {found[1]} is not set")
        return value

    return _VARIABLE.sub(replaced, text)


def is_reference(text: str) -> bool:
    """Whether a text is nothing but `${NAME}`, and so has no secret in it."""
    found = _VARIABLE.fullmatch(text)
    return found is not None and not found[2]


@functools.lru_cache(maxsize=16)
def output_of(command: str) -> str:
    """What a command prints, without the last newline. It runs once per process."""
    return run_command(command)


def run_command(command: str) -> str:
    try:
        words = shlex.split(command)
        done = subprocess.run(words, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise SettingsError(f"the command {command!r} for a secret failed: {error}") from None
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise SettingsError(f"the command {command!r} for a secret failed: {reason[0]}")
    return done.stdout.removesuffix("\n").removesuffix("\r")


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"profiles cannot be read from {file}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None


def _value(where: str, key: str, value: Any, environment: Mapping[str, str]) -> str | bool:
    if key not in KEYS:
        raise SettingsError(f"{where}: unknown key {key}{did_you_mean(key, KEYS)}; the keys are {', '.join(KEYS)}")
    if isinstance(value, bool) and key in ("tls", "verify_hostname"):
        return value
    if not isinstance(value, str):
        raise SettingsError(f"{where}: {key} must be a text")
    return value if key in COMMANDS else expanded(value, environment, f"{where} {key}")


def _check_secrets(file: Path, where: str, found: Mapping[str, Any]) -> None:
    written = [key for key in SECRETS if isinstance(found.get(key), str) and not is_reference(found[key])]
    if not written:
        return
    try:
        mode = file.stat().st_mode
    except OSError:
        return
    if os.name == "posix" and mode & (stat.S_IRGRP | stat.S_IROTH):
        _warn_once(f"{where} has a {written[0]}, and other users can read the file: chmod 600 {file}")


@functools.lru_cache(maxsize=64)
def _warn_once(text: str) -> None:
    log.warning("%s", text)
