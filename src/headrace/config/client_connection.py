"""Where a client connects to and as whom: arguments, then the environment, then a profile, then defaults.

Each field is taken from the first of these that has it. A profile that is named by an argument comes before the
environment; one that is named by `HEADRACE_PROFILE`, after it.

Texts of arguments may be references, `${NAME}`, to variables of the environment. They are resolved here, in the process
that connects, so that they can be sent and shown unresolved.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.config.credentials import Credentials, Token
from headrace.config.profiles import COMMANDS, expanded, output_of, read_profile, run_command
from headrace.model.errors import SettingsError

DEFAULT_BOOTSTRAP = "localhost:9092"
PROFILE_VARIABLE = "HEADRACE_PROFILE"
VARIABLES = {
    "bootstrap": "HEADRACE_BOOTSTRAP",
    "http": "HEADRACE_HTTP",
    "access_key": "HEADRACE_ACCESS_KEY",
    "user": "HEADRACE_USER",
    "password": "HEADRACE_PASSWORD",
    "mechanism": "HEADRACE_SASL_MECHANISM",
    "token": "HEADRACE_TOKEN",
    "tls": "HEADRACE_TLS",
    "ca_file": "HEADRACE_CA_FILE",
    "cert_file": "HEADRACE_CERT_FILE",
    "key_file": "HEADRACE_KEY_FILE",
    "key_password": "HEADRACE_KEY_PASSWORD",
    "verify_hostname": "HEADRACE_VERIFY_HOSTNAME",
}
"""The environment variable of each field."""
CREDENTIAL_FIELDS = tuple(name for name in VARIABLES if name not in ("bootstrap", "http", "access_key"))

_SECRETS = ("password", "token", *COMMANDS)
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class ClientConnection:
    bootstrap: str
    http: str
    """The addresses for queues; empty if brokers are to be asked for them."""
    access_key: str = field(repr=False)
    credentials: Credentials


def resolve_connection(
    *, profile: str | None = None, environment: Mapping[str, str] | None = None, **given: Any
) -> ClientConnection:
    """The connection for these arguments, named as the keys of `VARIABLES`; those that are None are not given.

    Raises `SettingsError`.
    """
    environment = os.environ if environment is None else environment
    found = _merged(profile, given, environment)
    tls, ca_file = _tls(found.get("tls"))
    credentials = Credentials(
        user=found.get("user", ""),
        password=found.get("password", ""),
        mechanism=found.get("mechanism", ""),
        token=_token(found.get("token")),
        tls=tls,
        ca_file=found.get("ca_file") or ca_file,
        cert_file=found.get("cert_file", ""),
        key_file=found.get("key_file", ""),
        key_password=found.get("key_password", ""),
        verify_hostname=_boolean("verify_hostname", found.get("verify_hostname", True)),
    )
    return ClientConnection(
        found.get("bootstrap") or DEFAULT_BOOTSTRAP, found.get("http", ""), found.get("access_key", ""), credentials
    )


def resolve_credentials(given: Mapping[str, Any] | None = None) -> Credentials:
    """The credentials for these arguments (`profile` among them), the environment and the profile."""
    return resolve_connection(**(given or {})).credentials


def _merged(profile: str | None, given: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    for name in given:
        if name not in VARIABLES:
            raise SettingsError(f"a connection has no {name}: it has {', '.join(VARIABLES)}")
    arguments = {
        name: expanded(value, environment, name) if isinstance(value, str) else value
        for name, value in given.items()
        if value is not None
    }
    named = {name: environment[variable] for name, variable in VARIABLES.items() if environment.get(variable)}
    if profile:
        # Chosen here, so its credentials are not sent to a broker that a variable happens to name.
        merged = _over(named, read_profile(profile, environment))
    elif default := environment.get(PROFILE_VARIABLE):
        merged = _over(read_profile(default, environment), named)
    else:
        merged = named
    merged = _over(merged, arguments)
    if command := merged.pop("password_command", ""):
        merged["password"] = output_of(command)
    if command := merged.pop("token_command", ""):
        merged["token"] = _TokenCommand(command)
    return merged


def _over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Both, with `upper` first. A secret replaces any other way to log in of `lower`."""
    if any(upper.get(name) for name in _SECRETS):
        lower = {name: value for name, value in lower.items() if name not in _SECRETS}
    return {**lower, **upper}


class _TokenCommand:
    """Runs a command for each token that a connection needs."""

    def __init__(self, command: str) -> None:
        self._command = command

    def __call__(self) -> str:
        return run_command(self._command)


def _token(value: str | Callable[[], str] | None) -> Token | None:
    if not value:
        return None
    text = value
    return text if callable(text) else _FixedToken(text)


class _FixedToken:
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self) -> str:
        return self._token


def _tls(value: bool | str | os.PathLike[str] | None) -> tuple[bool | None, str]:
    """Whether TLS is used, and the CA file: `tls` may be one."""
    if value is None or value == "":
        return None, ""
    if isinstance(value, bool):
        return value, ""
    text = os.fspath(value)
    known = _BOOLEANS.get(text.lower())
    return (known, "") if known is not None else (True, text)


def _boolean(name: str, value: bool | str) -> bool:
    if isinstance(value, bool):
        return value
    if value.lower() not in _BOOLEANS:
        raise SettingsError(f"{name} is true or false, not {value!r}")
    return _BOOLEANS[value.lower()]
