"""Loading of broker settings from, in order of precedence, flags, the environment, the config file and defaults.

Each source is checked separately, so that an error names the source and the setting:
`headrace.toml: unknown setting log.retention.mss; did you mean log.retention.ms?`
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.config.broker import BROKER_SETTINGS, BrokerSettings, broker_settings
from headrace.config.client_connection import PROFILE_VARIABLE, VARIABLES
from headrace.config.link_rows import LINK_PASSWORD_PREFIX
from headrace.config.settings import Setting, did_you_mean
from headrace.config.topic import TOPIC_SETTINGS
from headrace.model.errors import SettingsError

ENVIRONMENT_PREFIX = "HEADRACE_"
SECURITY_FILE = "security.toml"
"""In the data directory: the settings that `headrace secure` has written, which take precedence over all others."""

NOT_SETTINGS = frozenset(
    {
        "HEADRACE_CONFIG",
        "HEADRACE_PIPELINES",
        "HEADRACE_INITIAL_ADMIN",
        PROFILE_VARIABLE,
        *VARIABLES.values(),
    }
)
"""Variables of the command line: the config file, the connection of clients, and the state directory of pipelines.
They may be set where a broker is started, too."""

_SERVICE_LINK = re.compile(r"HEADRACE_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
"""Variables that Kubernetes adds to every pod when there is a service named `headrace`."""

_KAFKA_NAMES = {
    "advertised.listeners": "advertise",
    "inter.broker.listener.name": "inter.broker.listener",
    "ssl.client.auth": "tls.client.auth",
    "ssl.principal.mapping.rules": "tls.principal.mapping.rules",
    "log.dir": "data.dir",
    "log.dirs": "data.dir",
    "log.retention.hours": "log.retention.ms",
    "log.retention.minutes": "log.retention.ms",
    "log.roll.hours": "log.roll.ms",
    "node.id": "broker.id",
}


def load_settings(
    *,
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    config_file: Path | None = None,
) -> BrokerSettings:
    """The settings from all sources. A given config file must exist; flags are by setting name."""
    merged: dict[str, str] = {}
    if config_file is not None:
        merged |= _checked(str(config_file), read_config_file(config_file))
    if environment is not None:
        merged |= _checked("environment", read_environment(environment))
    if flags is not None:
        merged |= _checked("command line", flags)
    secured = Path(merged.get("data.dir", BrokerSettings().data_dir)) / SECURITY_FILE
    if secured.exists():
        merged |= _checked(str(secured), read_config_file(secured))
    return broker_settings(merged)


def read_config_file(path: Path) -> dict[str, str]:
    """The settings in a TOML file, as text by name. Nested tables are flattened with dots."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: is not a text file in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}") from None
    texts: dict[str, str] = {}
    _flatten(str(path), "", document, texts)
    return texts


def _flatten(source: str, prefix: str, table: Mapping[str, Any], texts: dict[str, str]) -> None:
    for key, value in table.items():
        name = f"{prefix}.{key}" if prefix else key
        if isinstance(value, dict):
            _flatten(source, name, value, texts)
        elif name in texts:
            raise SettingsError(f"{source}: {name} is set twice")
        else:
            texts[name] = _text(source, name, value)


def _text(source: str, name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise SettingsError(f"{source}: {name} must be a string, a number, true or false, or a list of strings")


def read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings among these variables: `HEADRACE_LOG_RETENTION_MS` is `log.retention.ms`."""
    names = {environment_name(row): row.name for row in BROKER_SETTINGS.values()}
    texts: dict[str, str] = {}
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in NOT_SETTINGS or _SERVICE_LINK.fullmatch(variable):
            continue
        if variable.startswith(LINK_PASSWORD_PREFIX):
            continue
        name = names.get(variable)
        if name is None:
            raise SettingsError(f"environment: unknown setting {variable}{did_you_mean(variable, names)}")
        texts[name] = text
    return texts


def environment_name(row: Setting) -> str:
    return ENVIRONMENT_PREFIX + row.name.replace(".", "_").upper()


def _checked(source: str, texts: Mapping[str, str]) -> Mapping[str, str]:
    for name, text in texts.items():
        row = BROKER_SETTINGS.get(name)
        if row is None:
            raise SettingsError(f"{source}: unknown setting {name}{_hint(name)}")
        try:
            row.parse(text)
        except SettingsError as error:
            raise SettingsError(f"{source}: {error}") from None
    return texts


def _hint(name: str) -> str:
    if (topic_row := TOPIC_SETTINGS.get(name)) is not None and topic_row.broker_name is not None:
        return f": that is a topic setting; the broker's default for all topics is {topic_row.broker_name}"
    if name in _KAFKA_NAMES:
        return f"; did you mean {_KAFKA_NAMES[name]}?"
    return did_you_mean(name, BROKER_SETTINGS)
