"""Checks of broker settings against each other, and of addresses and access keys."""

import re
from collections import Counter
from typing import TYPE_CHECKING

from headrace.config.address import is_loopback, parse_address
from headrace.config.broker_rows import HTTP, HTTP_OFF, HTTPS
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint

if TYPE_CHECKING:
    from headrace.config.broker import BrokerSettings


def check_consistent(settings: "BrokerSettings") -> None:
    """Raise `SettingsError` if broker settings contradict each other, or an address or key is malformed."""
    _check_address("kafka.listen", settings.kafka_listen, default_port=None)
    if settings.advertise and not _check_address("advertise", settings.advertise, default_port=0).host:
        raise SettingsError(f"advertise={settings.advertise} has no host: write HOST or HOST:PORT")
    _check_listeners(settings)
    _check_http(settings)
    if not settings.data_dir:
        raise SettingsError("data.dir is empty: name a directory")
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        raise SettingsError(
            f"group.min.session.timeout.ms={settings.group_min_session_timeout_ms} is larger than "
            f"group.max.session.timeout.ms={settings.group_max_session_timeout_ms}"
        )
    _check_groups(settings, "consumer", ("heartbeat.interval.ms", "session.timeout.ms"))
    _check_groups(
        settings,
        "share",
        (
            "heartbeat.interval.ms",
            "session.timeout.ms",
            "record.lock.duration.ms",
            "delivery.count.limit",
            "partition.max.record.locks",
        ),
    )
    _check_groups(settings, "streams", ("heartbeat.interval.ms", "session.timeout.ms"))
    standbys, most = settings.group_streams_num_standby_replicas, settings.group_streams_max_standby_replicas
    if standbys > most:
        raise SettingsError(
            f"group.streams.num.standby.replicas={standbys} is larger than group.streams.max.standby.replicas={most}"
        )
    if settings.topic_defaults.encryption_at_rest == "shredded":
        raise SettingsError("log.encryption.at.rest=shredded is not allowed: shred one topic at a time")
    if not settings.group_consumer_assignors:
        raise SettingsError("group.consumer.assignors is empty: name uniform or range")
    if settings.queued_max_request_bytes < settings.socket_request_max_bytes:
        raise SettingsError(
            f"queued.max.request.bytes={settings.queued_max_request_bytes} is smaller than socket.request.max.bytes="
            f"{settings.socket_request_max_bytes}: a request of the maximum size could never be read"
        )


def _check_groups(settings: "BrokerSettings", kind: str, names: tuple[str, ...]) -> None:
    for name in names:
        low, value, high = (settings.value(f"group.{kind}.{part}{name}") for part in ("min.", "", "max."))
        assert isinstance(low, int)
        assert isinstance(value, int)
        assert isinstance(high, int)
        if not low <= value <= high:
            raise SettingsError(
                f"group.{kind}.{name}={value} is not from group.{kind}.min.{name}={low} "
                f"to group.{kind}.max.{name}={high}"
            )
    interval_ms, timeout_ms = (settings.value(f"group.{kind}.{name}") for name in names[:2])
    if interval_ms >= timeout_ms:  # type: ignore[operator]
        raise SettingsError(
            f"group.{kind}.heartbeat.interval.ms={interval_ms} must be below "
            f"group.{kind}.session.timeout.ms={timeout_ms}"
        )


def _check_listeners(settings: "BrokerSettings") -> None:
    listeners = settings.kafka_listeners
    names = [each.name for each in listeners]
    for name, count in Counter(names).items():
        if count > 1:
            raise SettingsError(f"listeners: two are named {name}: give one of them another name with ?name=…")
    if settings.inter_broker_listener and settings.inter_broker_listener not in names:
        raise SettingsError(
            f"inter.broker.listener={settings.inter_broker_listener} is no listener of this broker: "
            f"{', '.join(names)} are"
        )
    if any(each.uses_tls for each in listeners) or settings.http_uses_tls:
        for name in ("tls.cert.file", "tls.key.file"):
            if not settings.value(name):
                raise SettingsError(
                    f"{name} is not set, and a listener uses TLS: name the file, or make certificates for this machine "
                    "with: headrace cert dev"
                )
    for each in listeners:
        if each.client_auth != "none" and not settings.tls_ca_file:
            raise SettingsError(f"the listener {each} asks for client certificates: set tls.ca.file to their CA")
        if not each.is_local and not each.authenticates and not settings.insecure:
            raise SettingsError(
                f"the listener {each} can be reached from other machines without authentication: listen on 127.0.0.1, "
                "secure this broker (headrace secure), or allow it with --insecure"
            )
    own = settings.broker_listener
    if settings.etcd_endpoints and settings.authorization_enable and not own.authenticates:
        raise SettingsError(
            f"authorization.enable=true, and brokers do not authenticate on the listener {own}: set "
            "inter.broker.listener to one with SASL, or with client.auth=required"
        )
    has_login = settings.inter_broker_user and settings.inter_broker_password
    if settings.etcd_endpoints and own.uses_sasl and not has_login:
        raise SettingsError(
            f"brokers log in to each other on the listener {own}: set inter.broker.user and inter.broker.password"
        )


def _check_http(settings: "BrokerSettings") -> None:
    if settings.http_listen not in ("", HTTP_OFF):
        text = settings.http_listen.removeprefix(HTTPS).removeprefix(HTTP)
        host = _check_address("http.listen", text, default_port=None).host
        is_open = not (settings.sqs_access_keys or settings.authorization_enable or settings.insecure)
        if not is_loopback(host) and is_open:
            raise SettingsError(
                f"http.listen={settings.http_listen} can be reached from other machines without authentication: "
                "listen on 127.0.0.1, set authorization.enable=true or sqs.access.keys=ID:SECRET, or allow it with "
                "--insecure"
            )
    if settings.registry_listen not in ("", HTTP_OFF):
        text = settings.registry_listen.removeprefix(HTTPS).removeprefix(HTTP)
        host = _check_address("registry.listen", text, default_port=None).host
        if not is_loopback(host) and not (settings.authorization_enable or settings.insecure):
            raise SettingsError(
                f"registry.listen={settings.registry_listen} can be reached from other machines without "
                "authentication: listen on 127.0.0.1, set authorization.enable=true, or allow it with --insecure"
            )
    access_keys(settings.sqs_access_keys)
    if re.fullmatch("[0-9]{12}", settings.sqs_account_id) is None:
        raise SettingsError(f"sqs.account.id={settings.sqs_account_id} is not an account id: write 12 digits")
    if re.fullmatch("[a-z0-9-]+", settings.sqs_region) is None:
        raise SettingsError(f"sqs.region={settings.sqs_region} is not a region: write one such as us-east-1")


def access_keys(text: str) -> dict[str, str]:
    """The secrets in `sqs.access.keys` by key id. A `SettingsError` does not reveal any secret."""
    keys: dict[str, str] = {}
    for number, pair in enumerate((pair.strip() for pair in text.split(",") if pair.strip()), 1):
        key_id, colon, secret = pair.partition(":")
        if not colon or not key_id or not secret or "/" in key_id:
            raise SettingsError(f"sqs.access.keys: number {number} is not ID:SECRET")
        if key_id in keys:
            raise SettingsError(f"sqs.access.keys: {key_id} is listed twice")
        keys[key_id] = secret
    return keys


def _check_address(name: str, text: str, *, default_port: int | None) -> Endpoint:
    try:
        return parse_address(text, default_port=default_port)
    except SettingsError as error:
        raise SettingsError(f"{name}={text}: {error}") from None
