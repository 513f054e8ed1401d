"""What `headrace secure` does to a broker, as settings and steps. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.config.address import EVERY_ADDRESS, parse_address
from headrace.model.image import Endpoint

SECURE_LISTENER = "secure"
PLAIN_LISTENER = "plain"
BROKER_USER = "headrace-broker"
ALL_STEPS = 3
_ADVERTISE = "advertise="


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
    advertise: str = "",
    broker_password: str,
    http_port: int = 0,
    registry_port: int = 0,
) -> dict[str, str | Sequence[str] | bool]:
    """The settings after a step; `plain` is the address of the listener that the broker has today. With `advertise`,
    the new listener advertises that host, which the certificate is for.

    With `http_port`, the last step serves the SQS API over TLS there, and the schema registry at `registry_port`.
    """
    last = step == ALL_STEPS
    plain_address = _on_loopback(plain) if last else plain
    option = f"&{_ADVERTISE}{f'[{advertise}]' if ':' in advertise else advertise}" if advertise else ""
    settings: dict[str, str | Sequence[str] | bool] = {
        "listeners": [
            f"plain://{plain_address}?name={PLAIN_LISTENER}",
            f"sasl_tls://{listen}?name={SECURE_LISTENER}{option}",
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
        if registry_port:
            settings["registry.listen"] = f"https://{listen.rpartition(':')[0]}:{registry_port}"
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
    address, _ = _listener(settings, name)
    return address or None


def advertised_host(settings: Mapping[str, str]) -> str:
    """The host that the secure listener advertises; empty: the address that clients connected to."""
    _, options = _listener(settings, SECURE_LISTENER)
    found = next((each.removeprefix(_ADVERTISE) for each in options if each.startswith(_ADVERTISE)), "")
    return parse_address(found, default_port=0).host


def bootstrap_address(listen: str, advertised: str) -> str:
    """HOST:PORT by which clients reach the secure listener: without a name for others, the one on this machine."""
    endpoint = parse_address(listen)
    host = "localhost" if endpoint.host in EVERY_ADDRESS else endpoint.host
    return str(Endpoint(advertised or host, endpoint.port))


def _listener(settings: Mapping[str, str], name: str) -> tuple[str, list[str]]:
    """The address and the options of a listener; empty if it is not there."""
    for url in settings.get("listeners", "").split(","):
        address, _, query = url.partition("://")[2].partition("?")
        options = query.split("&")
        if f"name={name}" in options:
            return address, options
    return "", []


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
