import tomllib

import pytest

from headrace.cli.secure.plan import (
    SecuredFiles,
    advertised_host,
    bootstrap_address,
    listener_address,
    settings_for,
    step_of,
    to_toml,
)
from headrace.config.broker import broker_settings
from headrace.config.load import read_config_file

FILES = SecuredFiles("/s/broker.pem", "/s/broker-key.pem", "/s/ca.pem")


def secured(step: int, *, in_cluster: bool, advertise: str = "") -> dict[str, object]:
    return settings_for(  # type: ignore[return-value]
        step,
        files=FILES,
        listen=":9093",
        plain="0.0.0.0:9092",
        in_cluster=in_cluster,
        broker_password='p"w',
        advertise=advertise,
    )


@pytest.mark.parametrize(
    ("step", "among_brokers", "is_enforced", "is_open"),
    [(1, "plain", False, True), (2, "secure", False, True), (3, "secure", True, False)],
)
def test_each_step_of_a_cluster_is_a_valid_configuration(
    tmp_path, step: int, among_brokers: str, is_enforced: bool, is_open: bool
) -> None:
    (tmp_path / "security.toml").write_text(to_toml(secured(step, in_cluster=True)))  # type: ignore[arg-type]
    texts = read_config_file(tmp_path / "security.toml")
    settings = broker_settings({**texts, "etcd.endpoints": "127.0.0.1:2379"})
    assert settings.broker_listener.name == among_brokers
    assert settings.authorization_enable is is_enforced
    plain, secure = settings.kafka_listeners
    assert plain.is_local is not is_open
    assert (secure.protocol, secure.authenticates) == ("sasl_tls", True)
    assert settings.inter_broker_password == 'p"w'
    assert step_of(texts) == step
    assert listener_address(texts, "secure") == ":9093"
    assert listener_address(texts, "plain") == ("0.0.0.0:9092" if is_open else "127.0.0.1:9092")


def test_the_last_step_moves_queues_and_schemas_to_https() -> None:
    ports = {"http_port": 9324, "registry_port": 8081}
    common = {"files": FILES, "listen": "0.0.0.0:9093", "plain": "127.0.0.1:9092", "broker_password": "p", **ports}
    assert not {"http.listen", "registry.listen"} & settings_for(2, in_cluster=True, **common).keys()  # type: ignore[arg-type]
    last = settings_for(3, in_cluster=False, **common)  # type: ignore[arg-type]
    assert (last["http.listen"], last["registry.listen"]) == ("https://0.0.0.0:9324", "https://0.0.0.0:8081")


def test_a_broker_that_was_never_secured_has_done_no_step() -> None:
    assert step_of({}) == 0
    assert listener_address({}, "secure") is None


def test_one_broker_needs_one_step(tmp_path) -> None:
    text = to_toml(secured(3, in_cluster=False))  # type: ignore[arg-type]
    assert tomllib.loads(text)["authorization"]["enable"] is True
    (tmp_path / "security.toml").write_text(text)
    assert broker_settings(read_config_file(tmp_path / "security.toml")).authorization_enable


@pytest.mark.parametrize(
    ("advertise", "bootstrap"),
    [
        ("", "localhost:9093"),
        ("queue.example.org", "queue.example.org:9093"),
        ("10.0.0.7", "10.0.0.7:9093"),
        ("fd00::7", "[fd00::7]:9093"),
    ],
)
def test_clients_are_told_the_host_of_the_certificate(tmp_path, advertise: str, bootstrap: str) -> None:
    (tmp_path / "security.toml").write_text(to_toml(secured(3, in_cluster=False, advertise=advertise)))  # type: ignore[arg-type]
    texts = read_config_file(tmp_path / "security.toml")
    listener = broker_settings(texts).kafka_listeners[1]
    assert (listener.name, listener.advertise.strip("[]")) == ("secure", advertise)
    assert listener_address(texts, "secure") == ":9093"
    assert advertised_host(texts) == advertise
    assert bootstrap_address(":9093", advertise) == bootstrap


def test_a_listener_at_one_address_is_reached_there() -> None:
    assert bootstrap_address("10.0.0.7:9093", "") == "10.0.0.7:9093"
    assert advertised_host({}) == ""
