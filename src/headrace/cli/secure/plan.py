"""What `headrace secure` does to a broker, as settings and steps. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SECURE_LISTENER = "secure"
PLAIN_LISTENER = "plain"
BROKER_USER = "headrace-broker"
ALL_STEPS = 3


@dataclass(frozen=True, slots=True)
class SecuredFiles:
    """Where the files are that a broker needs."""

    certificate: str
    key: str
    ca: str


def settings_for(
    step: int,
    *,
    files: SecuredFiles,
    listen: str,
    plain: str,
    in_cluster: bool,
    broker_password: str,
    http_port: int = 0,
) -> dict[str, str | Sequence[str] | bool]:
    """The settings after a step; `plain` is the address of the listener that the broker has today.

    With `http_port`, the last step serves the SQS API over TLS there.
    """
    last = step == ALL_STEPS
    plain_address = _on_loopback(plain) if last else plain
    settings: dict[str, str | Sequence[str] | bool] = {
        "listeners": [
            f"plain://{plain_address}?name={PLAIN_LISTENER}",
            f"sasl_tls://{listen}?name={SECURE_LISTENER}",
        ],
        "tls.cert.file": files.certificate,
        "tls.key.file": files.key,
        "tls.ca.file": files.ca,
    }
    if not last:
        settings["insecure"] = True
    else:
        settings["authorization.enable"] = True
        if http_port:
            settings["http.listen"] = f"https://{listen.rpartition(':')[0]}:{http_port}"
    if in_cluster:
        settings["inter.broker.listener"] = PLAIN_LISTENER if step == 1 else SECURE_LISTENER
        settings["inter.broker.user"] = BROKER_USER
        settings["inter.broker.password"] = broker_password
    return settings


def step_of(settings: Mapping[str, str]) -> int:
    """The step that an earlier run with these settings has done; 0 for none."""
    if not settings:
        return 0
    if settings.get("authorization.enable") == "true":
        return ALL_STEPS
    return 2 if settings.get("inter.broker.listener") == SECURE_LISTENER else 1


def listener_address(settings: Mapping[str, str], name: str) -> str | None:
    """The address of a listener in the settings that an earlier run has written; None if it is not there."""
    for url in settings.get("listeners", "").split(","):
        address, _, query = url.partition("://")[2].partition("?")
        if query == f"name={name}":
            return address
    return None


def to_toml(settings: Mapping[str, str | Sequence[str] | bool]) -> str:
    """The settings as a file for a broker."""
    lines = ["# Written by headrace secure. These settings take precedence over all others."]
    for name, value in settings.items():
        lines.append(f"{name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def _toml(value: str | Sequence[str] | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return "[" + ", ".join(map(_toml, value)) + "]"


def _on_loopback(address: str) -> str:
    return f"127.0.0.1:{address.rpartition(':')[2]}"
