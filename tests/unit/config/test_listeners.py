import pytest

from headrace.config.broker import broker_settings
from headrace.config.listeners import KafkaListener, parse_listener
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint

TLS = {"tls.cert.file": "broker.pem", "tls.key.file": "broker-key.pem"}


def parse(text: str) -> KafkaListener:
    return parse_listener(text, client_auth="none", mechanisms=("SCRAM-SHA-256",), advertise="")


def test_a_listener_with_every_option() -> None:
    text = "sasl_tls://:9093?name=public&advertise=kafka.example.org:443&client.auth=requested&sasl=plain+SCRAM-SHA-512"
    assert parse(text) == KafkaListener(
        "public", "sasl_tls", Endpoint("", 9093), "kafka.example.org:443", "requested", ("PLAIN", "SCRAM-SHA-512")
    )


@pytest.mark.parametrize(
    ("text", "authenticates", "is_local"),
    [
        ("plain://127.0.0.1:9092", False, True),
        ("plain://[::1]:9092", False, True),
        ("plain://:9092", False, False),
        ("tls://0.0.0.0:9093", False, False),
        ("tls://0.0.0.0:9093?client.auth=requested", False, False),
        ("tls://0.0.0.0:9093?client.auth=required", True, False),
        ("sasl_plain://localhost:9093", True, True),
        ("sasl_tls://broker1:9093", True, False),
    ],
)
def test_who_gets_in(text: str, authenticates: bool, is_local: bool) -> None:
    listener = parse(text)
    assert (listener.authenticates, listener.is_local) == (authenticates, is_local)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("127.0.0.1:9092", "write PROTOCOL://HOST:PORT"),
        ("SASL_SSL://:9093", "Kafka's SASL_SSL is sasl_tls"),
        ("http://:80", "no known protocol"),
        ("tls://:9093?nam=x", "unknown option nam"),
        ("tls://:9093?name=a&name=b", "name twice"),
        ("tls://:9093?name=", "without a value"),
        ("tls://:9093?client.auth=maybe", "one of none, requested, required"),
        ("tls://:9093?sasl=PLAIN", "must be sasl_tls or sasl_plain"),
        ("sasl_plain://:9093?client.auth=required", "must be tls or sasl_tls"),
        ("sasl_tls://:9093?sasl=GSSAPI", "unknown SASL mechanism GSSAPI"),
        ("tls://:9093?advertise=:9", "advertises no host"),
        ("tls://:x", "no valid port"),
    ],
)
def test_mistakes_are_explained(text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse(text)


def test_the_short_form_is_one_plain_listener_on_loopback() -> None:
    (listener,) = broker_settings({}).kafka_listeners
    assert (listener.name, str(listener)) == ("plain", "plain://127.0.0.1:9092")


@pytest.mark.parametrize(
    "listeners",
    ["plain://:9092", "tls://:9093", "plain://127.0.0.1:9092,tls://10.0.0.1:9093?client.auth=requested"],
)
def test_other_machines_get_in_only_with_authentication(listeners: str) -> None:
    settings = {**TLS, "tls.ca.file": "ca.pem", "listeners": listeners}
    with pytest.raises(SettingsError, match=r"without authentication.*--insecure"):
        broker_settings(settings)
    broker_settings({**settings, "insecure": "true"})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"listeners": "tls://127.0.0.1:9093"}, "tls.cert.file is not set"),
        ({**TLS, "listeners": "tls://:9093?client.auth=required"}, "set tls.ca.file"),
        ({"listeners": "plain://127.0.0.1:1,plain://127.0.0.1:2"}, "two are named plain"),
        ({"inter.broker.listener": "tls"}, "no listener of this broker: plain"),
        (
            {"etcd.endpoints": "127.0.0.1:1", "listeners": "sasl_plain://127.0.0.1:9092"},
            "set inter.broker.user and inter.broker.password",
        ),
        ({"etcd.endpoints": "127.0.0.1:1", "authorization.enable": "true"}, "brokers do not authenticate"),
    ],
)
def test_listeners_that_contradict_other_settings(settings: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        broker_settings(settings)


def test_secrets_are_not_in_the_text_of_settings() -> None:
    settings = broker_settings({"inter.broker.password": "planted-1", "tls.key.password": "planted-2"})
    assert "planted" not in repr(settings)
