"""Commands of a user without permission end with a sentence about it, and without a traceback."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace import Client
from headrace.config.client_connection import resolve_credentials
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.testing import Broker
from headrace.wire import Cluster


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(tls=True, users={"admin": "a-secret", "bob": "b-secret"}, settings=settings) as running:
        yield running


@pytest.mark.parametrize(
    ("user", "command", "sentence"),
    [
        ("bob", ("produce", "orders"), "authorization failed"),
        ("bob", ("cluster", "status"), "needs DESCRIBE on the cluster"),
        ("bob", ("queue", "send", "mails", "hello"), "User:bob"),
    ],
)
def test_a_denied_command_says_what_is_missing(
    broker: Broker, user: str, command: tuple[str, ...], sentence: str
) -> None:
    env = {
        **os.environ,
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "HEADRACE_USER": user,
        "HEADRACE_PASSWORD": f"{user[0]}-secret",
        "HEADRACE_CA_FILE": str(broker.ca_file),
    }
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *command],
        env=env,
        input="hello\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    # A producer is refused by the topic and as a producer: either answer may come first.
    assert sentence in done.stderr or sentence in done.stderr.lower().replace("_", " ")
    assert "Traceback" not in done.stderr


def test_queues_are_found_without_permission_for_settings(broker: Broker) -> None:
    with Client(broker.bootstrap, user="admin", password="a-secret", tls=broker.ca_file) as admin:
        admin.queue("letters").create()
    rules = [
        Acl(ResourceType.TOPIC, PatternType.LITERAL, "letters", "User:bob", "*", operation, Permission.ALLOW)
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    credentials = resolve_credentials({"user": "admin", "password": "a-secret", "tls": broker.ca_file})
    with Cluster(broker.bootstrap, credentials=credentials) as cluster:
        cluster.create_acls(rules)
    with Client(broker.bootstrap, user="bob", password="b-secret", tls=broker.ca_file) as bob:
        bob.queue("letters").send(b"hello")
        (received,) = bob.queue("letters").receive()
        assert received.body == b"hello"
