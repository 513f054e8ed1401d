"""Workloads of security: TLS and SCRAM beside plain connections, ACLs switched on and off, handshakes, connections."""

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from harness.lab import Lab, MeasurementFailed, Variant
from harness.secure_systems import SCRAM, SCRAM_ONLY, TLS, USER
from harness.workload import Metric, Result, Workload, batch_messages, last_line, preload, result_of

_HEADRACE, _KAFKA = "headrace-secure", "kafka-secure"
_OS = {"flush.policy": "os"}
_PARTITIONS = 4
_MESSAGE_BYTES = 1024
_OTHER_ACLS = 1000
_THREADS = 4

PLAIN_AND_SECURE = (
    Variant("headrace plain", _HEADRACE, _OS),
    Variant("headrace tls", _HEADRACE, _OS, listener=TLS),
    Variant("headrace scram+tls", _HEADRACE, _OS, listener=SCRAM),
    Variant("kafka plain", _KAFKA),
    Variant("kafka tls", _KAFKA, listener=TLS),
    Variant("kafka scram+tls", _KAFKA, listener=SCRAM),
)
ACLS_OFF = Variant("headrace acls off", _HEADRACE, _OS, listener=SCRAM_ONLY)
ACLS_ON = Variant("headrace acls on", _HEADRACE, _OS, listener=SCRAM_ONLY)


def _load(lab: Lab, variant: Variant, what: str, topic: str, **options: object) -> Result:
    sizes = lab.sizes
    given = {"partitions": _PARTITIONS, "connections": 2, "max_bytes": sizes.max_bytes, "seconds": sizes.seconds}
    return lab.measure(variant, "load.py", what, topic=topic, warmup=sizes.warmup_s, **{**given, **options})


class SecureProduce(Workload):
    name = "secure-produce"
    title = "Produce, 1 KiB messages in full batches, 4 partitions, over TLS and with SCRAM"
    metric = Metric("mb_s", "MB/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))
    variants = PLAIN_AND_SECURE

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        batch = batch_messages(_MESSAGE_BYTES)
        with lab.topic(variant, _PARTITIONS) as topic:
            return _load(lab, variant, "produce", topic, message_bytes=_MESSAGE_BYTES, batch_messages=batch, depth=5)


class SecureConsume(Workload):
    name = "secure-consume"
    title = "Consume, 1 KiB messages in full batches, 4 partitions, over TLS and with SCRAM"
    metric = Metric("mb_s", "MB/s")
    shown = (Metric("server_cpu_ms_per_gb", "ms CPU/GB", False), Metric("client_busy", "client busy", False))
    variants = PLAIN_AND_SECURE

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        with lab.topic(variant, _PARTITIONS) as topic:
            preload(lab, variant, topic, _PARTITIONS, _MESSAGE_BYTES, lab.sizes.preload_bytes)
            yield topic

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        return _load(lab, variant, "consume", topic)


class Acls(Workload):
    """The smallest requests, so that a check is as much of each as it can be. Short turns, since the machine varies."""

    metric = Metric("server_cpu_us_per_request", "µs CPU/request", False)
    shown = (Metric("requests_s", "requests/s"), Metric("client_busy", "client busy", False))
    variants = (ACLS_OFF, ACLS_ON)
    least_rounds = 8
    _seconds = 0.6

    def __init__(self, what: str) -> None:
        self.name = f"secure-acls-{what}"
        self.title = f"{what.capitalize()} with {_OTHER_ACLS:,} ACLs, 100 B messages one by one, on and off in turns"
        self._what = what

    @contextmanager
    def prepared(self, lab: Lab, variant: Variant) -> Iterator[str]:
        admin = _admin(lab, variant)
        switch(admin, on=True)
        create_acls(admin)
        with lab.topic(variant, _PARTITIONS) as topic:
            preload(lab, variant, topic, _PARTITIONS, 100, 1_000_000, batch=1)
            yield topic
        switch(_admin(lab, variant), on=False)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        switch(_admin(lab, variant), on=variant is ACLS_ON)
        if self._what == "produce":
            options = {"message_bytes": 100, "batch_messages": 1, "depth": 32}
        else:
            options = {"fetch_bytes": 1, "connections": 8}
        return _load(lab, variant, self._what, topic, seconds=self._seconds, **options)


class Handshakes(Workload):
    name = "secure-handshakes"
    title = f"Connections that make one request, one after the other on {_THREADS} threads, without resumed sessions"
    metric = Metric("handshakes_s", "connections/s")
    shown = (Metric("server_cpu_ms", "ms CPU/connection", False), Metric("client_busy", "client busy", False))
    variants = tuple(variant for variant in PLAIN_AND_SECURE if variant.listener)

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        result = lab.measure(variant, "connections.py", "handshakes", connections=_THREADS, seconds=lab.sizes.seconds)
        return {**result, "server_cpu_ms": result["server_cpu_s"] * 1e3 / max(1.0, result["handshakes"])}


class SecureConnections(Workload):
    name = "secure-connections"
    metric = Metric("kb_per_connection", "kB/connection", False)
    shown = (Metric("rss_mb", "MB resident", False), Metric("alive", "answered afterwards"))
    variants = tuple(
        variant for variant in PLAIN_AND_SECURE if variant.label in ("headrace plain", "headrace tls", "kafka tls")
    )
    rounds = 1

    def __init__(self, connections: int) -> None:
        self._connections = connections
        self.title = f"Memory of {connections:,} idle connections"

    def run(self, lab: Lab, variant: Variant, topic: str) -> Result:
        system = lab.fresh(variant.system)
        before = system.rss_bytes()
        where = system.address(variant.listener)
        with lab.background("connections.py", "idle", connections=self._connections, **where) as holder:
            assert holder.stdout is not None
            if not holder.stdout.readline():
                raise MeasurementFailed(f"connections: {last_line(holder)}")
            during = system.rss_bytes()
            alive = result_of(holder)["alive"]
        return {
            "rss_mb": during / 1e6,
            "kb_per_connection": (during - before) / self._connections / 1e3,
            "alive": alive,
        }


def security_workloads(connections: int) -> list[Workload]:
    return [
        SecureProduce(),
        SecureConsume(),
        Acls("produce"),
        Acls("consume"),
        Handshakes(),
        SecureConnections(connections),
    ]


def _admin(lab: Lab, variant: Variant) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{lab.system(variant.system).port}", "log_level": 0})


def create_acls(admin: AdminClient) -> None:
    """What the user of the load needs, among rules of others."""
    wanted = [
        _acl(ResourceType.TOPIC, "bench-", USER, operation, ResourcePatternType.PREFIXED)
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    wanted += [
        _acl(ResourceType.TOPIC, f"topic-{number % 200}", f"user-{number}", AclOperation.READ)
        for number in range(_OTHER_ACLS)
    ]
    for created in admin.create_acls(wanted).values():
        created.result(60)


def _acl(
    kind: ResourceType,
    name: str,
    user: str,
    operation: AclOperation,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def switch(admin: AdminClient, *, on: bool) -> None:
    entry = ConfigEntry("authorization.enable", str(on).lower(), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "0", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
