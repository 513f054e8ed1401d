"""Secrets in no log line, error, file, audit event or answer, and not on the command line of the process."""

import json
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from headrace.config.broker import BROKER_SETTINGS
from headrace.config.load import load_settings
from headrace.config.settings import Kind
from headrace.model.image import AUDIT_TOPIC
from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing.process import BrokerProcess
from tests.interop.batches import parse
from tests.interop.raw_client import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    SASL_AUTHENTICATE,
    Closed,
    Error,
    fetch,
)
from tests.waiting import until

from .certificates import presenting
from .wire import Client

MARK = "s3cr3t"
"""Part of every secret."""
ADMIN_PASSWORD = f"{MARK}-of-the-admin"
KEY_PASSWORD = f"{MARK}-of-the-key"
SECRETS = {
    "tls.key.password": KEY_PASSWORD,
    "inter.broker.password": f"{MARK}-of-brokers",
    "sqs.access.keys": f"AKID:{MARK}-of-the-access-key",
    "etcd.password": f"{MARK}-of-etcd",
    "encryption.master.key": f"{MARK}{'A' * 37}=",
}
BROKER, TOPIC = 4, 2


def _environment(name: str) -> str:
    return f"HEADRACE_{name.upper().replace('.', '_')}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates with an encrypted key of the broker."""
    folder = tmp_path_factory.mktemp("certificates")
    made = make_dev_certificates(folder)
    key_file = made.broker.key_file
    key = load_pem_private_key(key_file.read_bytes(), None)
    encrypted = BestAvailableEncryption(KEY_PASSWORD.encode())
    key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted))
    return folder


def _broker(folder: Path, certificates: Path, log_format: str = "text", **environment: str) -> BrokerProcess:
    settings = {
        "listeners": "sasl_tls://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "tls.cert.file": certificates / "broker.pem",
        "tls.key.file": certificates / "broker-key.pem",
        "inter.broker.user": "broker",
        "log.level": "debug",
        "log.format": log_format,
        "audit.enable": True,
        "audit.file": folder / "data" / "audit.jsonl",
    }
    secrets = {_environment(name): value for name, value in SECRETS.items()}
    secrets["HEADRACE_INITIAL_ADMIN"] = f"alice:{ADMIN_PASSWORD}"
    return BrokerProcess(
        folder / "data",
        settings=settings,
        env=secrets | environment,
        log_file=folder / "log",
    )


@pytest.fixture(scope="module", params=["text", "json"])
def broker(
    certificates: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[BrokerProcess]:
    """Brokers with both formats of the log."""
    running = _broker(tmp_path_factory.mktemp("broker"), certificates, request.param)
    try:
        yield running.start()
    finally:
        running.close()


_sources = (f"127.0.1.{number}" for number in range(1, 255))


def _connect(broker: BrokerProcess, certificates: Path) -> Client:
    """A connection from an address of its own: the log has a line about each address, not about each connection."""
    return Client(broker.bootstrap, presenting(None, trusted=certificates / "ca.pem"), next(_sources))


@pytest.fixture
def admin(broker: BrokerProcess, certificates: Path) -> Iterator[Client]:
    with _connect(broker, certificates) as client:
        assert client.log_in("PLAIN", password=ADMIN_PASSWORD).error_code == Error.none
        yield client


def test_the_configuration_shows_no_secret(admin: Client) -> None:
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((BROKER, "0"), (BROKER, ""), (8, "0"), (32, "group"), (16, "metrics"))
    ]
    answer = admin.call(DESCRIBE_CONFIGS, 4, resources=resources, include_synonyms=True, include_documentation=True)
    assert MARK not in repr(answer)
    shown = {entry.name: entry for entry in answer.results[0].configs}
    for name in SECRETS:
        assert shown[name].value is None, name
        assert shown[name].is_sensitive, name


def test_errors_of_configuration_show_no_secret(admin: Client) -> None:
    for name in (*SECRETS, "ssl.key.password", "sasl.jaas.config", "unknown.password"):
        value = f"{MARK}-that-is-new"
        change = {"name": name, "value": value, "config_operation": 0}
        resource = {"resource_type": BROKER, "resource_name": "0", "configs": [change]}
        assert MARK not in repr(admin.call(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False))
        assert MARK not in repr(admin.call(ALTER_CONFIGS, 2, resources=[resource], validate_only=True))


def test_no_secret_is_logged_stored_or_shown(broker: BrokerProcess, admin: Client, certificates: Path) -> None:
    _provoke(broker, certificates)
    events = until(lambda: _audit_events(admin, b"authentication", b"failure"), "events of failed logins")
    assert MARK.encode() not in b"".join(events)
    if broker.settings["log.format"] == "json":
        assert all(MARK not in repr(json.loads(line)) for line in broker.stderr.splitlines()), "not escaped either"
    assert MARK not in broker.stderr
    assert "failed to authenticate" in broker.stderr, "the errors were not provoked"
    command = Path(f"/proc/{broker.pid}/cmdline").read_bytes()
    assert MARK.encode() not in command
    for path in broker.data_dir.rglob("*"):
        if path.is_file():
            assert MARK.encode() not in path.read_bytes(), path


def _audit_events(admin: Client, *having: bytes) -> list[bytes]:
    """What the audit topic has, once there is an event with these texts; the topic is compressed on disk."""
    (topic,) = admin.call(METADATA, 9, topics=[{"name": AUDIT_TOPIC}]).topics
    parts = [fetch(admin, AUDIT_TOPIC, partition=index) for index in range(len(topic.partitions))]
    found = [
        b"".join(filter(None, (record.key, record.value, repr(record.headers).encode())))
        for part in parts
        for batch in parse(part.records)
        for record in batch.records
    ]
    return found if any(all(text in event for text in having) for event in found) else []


def _provoke(broker: BrokerProcess, certificates: Path) -> None:
    """Send secrets in every place where a broker could quote them."""
    plain = f"\0alice\0{ADMIN_PASSWORD}-wrong".encode()
    for token in (plain, plain[1:], f"n,,n=alice,r={MARK}".encode(), b"\xff" + plain):
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            with _connect(broker, certificates) as client:
                client.handshake(mechanism)
                client.authenticate(token)
    for frame in (
        plain,
        struct.pack(">hhih", SASL_AUTHENTICATE, 2, 1, -1) + plain,
        struct.pack(">hhih", SASL_AUTHENTICATE, 99, 1, -1) + plain,
        struct.pack(">hhih", 32767, 0, 1, -1) + plain,
    ):
        with _connect(broker, certificates) as client, suppress(Closed):
            client.send_frame(frame)
            client.receive_frame()
    with _connect(broker, certificates) as client, suppress(Closed):
        client.handshake(MARK)
        client.call(METADATA, 4, topics=None)
    with _connect(broker, certificates) as client, suppress(Closed):
        client.handshake("PLAIN", version=0)
        client.send_frame(plain)
        client.receive_frame()
    password = {"name": "bob", "password": f"{MARK}-\u200b", "mechanism": MARK}
    basic = {"Authorization": f"Basic {b64encode(f'alice:{ADMIN_PASSWORD}'.encode()).decode()}"}
    wrong = {"Authorization": f"Basic {b64encode(f'alice:{MARK}-wrong'.encode()).decode()}"}
    session = f"{broker.http_url}/api/v1/session"
    for headers in (basic, wrong):
        for body in (json.dumps(password).encode()[:-1], f'["{MARK}"]'.encode()):
            _assert_refused(Request(session, body, headers | {"Content-Type": "application/json"}))
    for authorization in (f"AWS4-HMAC-SHA256 Credential=AKID/{MARK}", f"Basic {MARK}", f"Bearer {MARK}"):
        headers = {"Authorization": authorization, "X-Amz-Security-Token": MARK}
        request = Request(f"{broker.http_url}/?Action=ListQueues&X-Amz-Signature={MARK}", b"", headers)
        _assert_refused(request)


def _assert_refused(request: Request) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(request)
    with refused.value as answer:
        assert MARK.encode() not in answer.read()


@pytest.mark.parametrize(
    "environment",
    [
        {"HEADRACE_TLS_KEY_PASSWORD": f"{MARK}-that-is-wrong"},
        {"HEADRACE_INITIAL_ADMIN": f"{MARK}-without-a-name"},
        {"HEADRACE_INITIAL_ADMIN": f"alice:{MARK}-\u200b"},
        {"HEADRACE_SQS_ACCESS_KEYS": f"{MARK}-without-an-id"},
        {"HEADRACE_SQS_ACCESS_KEYS": f"AKID:{MARK},AKID:{MARK}"},
        {"HEADRACE_INTER_BROKER_PASSWORT": f"{MARK}-of-a-wrong-name"},
    ],
    ids=lambda environment: next(iter(environment)),
)
def test_errors_at_startup_show_no_secret(certificates: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    broker = _broker(tmp_path, certificates, **environment)
    with pytest.raises(RuntimeError) as failed:
        broker.start()
    broker.close()
    assert "headrace: " in str(failed.value)
    assert MARK not in str(failed.value)


def test_every_setting_with_a_secret_is_tested() -> None:
    secret = {row.name for row in BROKER_SETTINGS.values() if row.kind is Kind.PASSWORD and row.has_effect}
    assert secret == set(SECRETS)


def test_settings_can_be_printed() -> None:
    settings = load_settings(flags=dict(SECRETS))
    assert MARK not in repr(settings)
    assert MARK not in str(settings)
