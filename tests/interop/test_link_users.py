"""Users that a link copies between two real brokers: they log in here with the passwords of the source."""

import logging
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headrace.model.acls import CLUSTER_NAME, Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.links import LinkSync
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to, services
from tests.interop.test_link_access import create_acls
from tests.interop.test_link_schemas import audited, problems
from tests.waiting import until

SCRAM = "SCRAM-SHA-256"
PASSWORD_ENV = "HEADRACE_LINK_PASSWORD_EU"
CLUSTER_ACTION = Acl(
    ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME, "User:link", "*", AclOperation.CLUSTER_ACTION,
    Permission.ALLOW,
)  # fmt: skip


@pytest.fixture
def source() -> Iterator[Broker]:
    users = {"admin": "a", "link": "link-password", "alice": "first", "bob": "theirs", "boss": "b"}
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(settings=settings, users=users) as broker:
        yield broker


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setenv(PASSWORD_ENV, "link-password")
    settings = {"authorization.enable": True, "super.users": "User:root;User:boss", "link.refresh.interval.ms": 100}
    with Broker(settings=settings, users={"root": "r", "bob": "ours"}) as broker:
        yield broker


def can_log_in(broker: Broker, user: str, password: str, timeout_s: float = 20) -> bool:
    config: dict[str, Any] = broker.kafka_settings("root", mechanism=SCRAM)
    config |= {
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
        "socket.connection.setup.timeout.ms": 5000,
    }
    try:
        AdminClient(config, logger=logging.getLogger("quiet")).list_topics(timeout=timeout_s)
    except KafkaException:
        return False
    return True


def test_users_log_in_with_the_passwords_of_the_source(
    source: Broker, target: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "headrace")
    login = {"user": "link", "mechanism": SCRAM, "password_env": PASSWORD_ENV}
    ask(target, lambda links: links.create(link_to(source, topics=("none",), sync=LinkSync(users=True), **login)))
    until(lambda: "User:link needs the permission CLUSTER_ACTION" in problems(target).get("users", ""))
    assert "alice" not in image(target).security.users

    with audited(source) as at_source, audited(target) as at_target:
        create_acls(source, CLUSTER_ACTION)
        until(lambda: "alice" in image(target).security.users)
        until(lambda: ("Link:eu", "SyncUsers", "alice") in at_target)
        assert ("User:link", "ReadVerifiers", CLUSTER_NAME) in at_source
    assert can_log_in(target, "alice", "first")
    assert not can_log_in(target, "alice", "second", 1)
    assert can_log_in(target, "bob", "ours"), "a user of this cluster keeps its password"
    assert "boss" not in image(target).security.users, "no super user is brought"
    until(lambda: "super users here and are never copied, for example boss" in problems(target).get("users", ""))
    assert "have another password at the source, for example bob" in problems(target)["users"]

    source.set_password("alice", "second")
    until(lambda: can_log_in(target, "alice", "second", 1))
    assert not can_log_in(target, "alice", "first", 1)
    target.restart()
    source.delete_user("alice")
    until(lambda: "alice" not in image(target).security.users, "what was brought is known after a restart")
    assert "bob" in image(target).security.users

    stored = [
        each for user in services(source).metadata.image.security.users.values() for each in user.credentials.values()
    ]
    secrets = [
        text
        for each in stored
        for key in (each.stored_key, each.server_key)
        for text in (repr(key), b64encode(key).decode())
    ]
    assert not any(secret in record.getMessage() for record in caplog.records for secret in secrets)


def test_a_password_that_is_set_here_stays(source: Broker, target: Broker) -> None:
    create_acls(source, CLUSTER_ACTION)
    login = {"user": "link", "mechanism": SCRAM, "password_env": PASSWORD_ENV}
    ask(target, lambda links: links.create(link_to(source, topics=("none",), sync=LinkSync(users=True), **login)))
    until(lambda: "alice" in image(target).security.users)
    target.set_password("alice", "mine")
    until(lambda: "alice" in problems(target).get("users", ""))
    assert can_log_in(target, "alice", "mine")
    source.delete_user("alice")
    until(lambda: "alice" not in problems(target).get("users", ""))
    assert "alice" in image(target).security.users, "it belongs to this cluster"


def test_without_authorization_at_the_source_nobody_gets_them(target: Broker) -> None:
    with Broker(users={"link": "link-password"}) as source:
        login = {"user": "link", "mechanism": SCRAM, "password_env": PASSWORD_ENV}
        ask(target, lambda links: links.create(link_to(source, topics=("none",), sync=LinkSync(users=True), **login)))
        until(lambda: "authorization is off at the source" in problems(target).get("users", ""))
