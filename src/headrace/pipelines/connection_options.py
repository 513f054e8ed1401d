"""Credentials as options of Spark's sources and sinks, and of pipeline files.

| Option | Meaning |
|---|---|
| `profile` | a profile of `~/.config/headrace/config.toml`, which driver and executors have |
| `user`, `password` | log in with SASL; `mechanism` is SCRAM-SHA-512 by default |
| `token` | for OAUTHBEARER |
| `tls` | `true` for the authorities of the system, or the path of a CA file |
| `caFile`, `certFile`, `keyFile`, `keyPassword` | PEM files for TLS; a certificate of the client's own for mTLS |
| `verifyHostname` | `false` accepts a trusted certificate of another host |

Options travel as they are written, in plans and in tasks. `${NAME}` is a reference to an environment variable, which is
resolved where a connection is made, on the driver and on each executor: a secret should be one, or come from a profile.
Without options, `HEADRACE_USER`, `HEADRACE_PASSWORD` … of each process are used.
"""

import os
from collections.abc import Mapping

from headrace.config.client_connection import CREDENTIAL_FIELDS, resolve_credentials
from headrace.config.credentials import Credentials
from headrace.config.profiles import read_profile

USE_OURS = "the options user, password, tls, caFile, certFile and profile are for TLS and SASL"

ConnectionOptions = tuple[tuple[str, str], ...]
"""The options that are given, by the names of `resolve_credentials`, unresolved."""


def _option_name(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(each.capitalize() for each in others)


CONNECTION_NAMES = {_option_name(field): field for field in ("profile", *CREDENTIAL_FIELDS)}
"""The fields of a connection by the names of their options."""
_BY_LOWER_NAME = {name.lower(): field for name, field in CONNECTION_NAMES.items()}


def connection_options(given: Mapping[str, str]) -> ConnectionOptions:
    """The options of the connection among all of them, whose names are case-insensitive."""
    found = ((_BY_LOWER_NAME.get(name.lower()), str(value).strip()) for name, value in given.items())
    return tuple(sorted((field, value) for field, value in found if field is not None))


def spark_options(connection: ConnectionOptions) -> dict[str, str]:
    """The options for `spark.read.format("headrace")` and its like."""
    names = {field: name for name, field in CONNECTION_NAMES.items()}
    return {names[field]: value for field, value in connection}


def bootstrap_of(connection: ConnectionOptions) -> str:
    """The bootstrap servers of the profile, if one is named."""
    profile = dict(connection).get("profile")
    return str(read_profile(profile, os.environ).get("bootstrap", "")) if profile else ""


def credentials_of(connection: ConnectionOptions) -> Credentials:
    """Resolve the credentials in this process. Raises `SettingsError`."""
    return resolve_credentials(dict(connection))
