"""Users, ACLs and access keys made by commands decide for real clients, over TLS with logins."""

import json
import shlex
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from headrace import Client
from headrace.cli.errors import CommandFailed
from headrace.cli.main import app
from headrace.config.client_connection import VARIABLES
from headrace.testing import Broker

ROOT, ALICE = ("root", "secret of root"), ("alice", "secret of alice")
Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorization.enable": True, "super.users": "User:root", "sqs.recreate.wait.ms": 0}
    with Broker(tls=True, users=dict([ROOT]), settings=settings) as one:
        yield one


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(broker: Broker) -> Run:
    def command(typed: str, *, by: tuple[str, str] = ROOT, stdin: str = "", **environment: str) -> str:
        login = {
            "HEADRACE_BOOTSTRAP": broker.bootstrap,
            "HEADRACE_USER": by[0],
            "HEADRACE_PASSWORD": by[1],
            "HEADRACE_CA_FILE": str(broker.ca_file),
        }
        result = CliRunner().invoke(app, shlex.split(typed), env={**login, **environment}, input=stdin)
        if isinstance(result.exception, CommandFailed):
            raise result.exception
        assert result.exit_code == 0, result.output
        assert not any(secret in result.output for _, secret in (ROOT, ALICE))
        return result.stdout

    return command


def test_a_user_may_do_what_rules_allow(broker: Broker, run: Run) -> None:
    run("user create alice --password-stdin", stdin=f"{ALICE[1]}\n")
    run("topic create orders --partitions 1")
    with Client(broker.bootstrap, user=ALICE[0], password=ALICE[1], tls=str(broker.ca_file)) as client:
        run("acl add alice --producer orders --consumer orders --group billing")
        client.publish("orders", "tea", partition=0)
        with client.consume("orders", group="billing", start="earliest") as stream:
            assert next(iter(stream)).text == "tea"
    assert "yes: " in run("acl explain alice write topic:orders")
    run("acl remove alice --yes")
    config = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": ALICE[0],
        "sasl.password": ALICE[1],
        "ssl.ca.location": str(broker.ca_file),
    }
    (topic,) = AdminClient(config).list_topics("orders", timeout=30).topics.values()
    assert topic.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_an_access_key_signs_requests_of_queues(run: Run) -> None:
    run("user create sender --password-stdin", stdin=f"{ALICE[1]}\n")
    run("acl add sender --operation all --on queue:emails")
    own = ("sender", ALICE[1])
    # Without a permission for settings: the address over HTTP is told to every user.
    made = json.loads(run("user key create sender --json", by=own))
    assert made["id"] in run("user key list sender", by=own)
    key = {"HEADRACE_ACCESS_KEY": f"{made['id']}:{made['secret']}"}
    run("queue create emails", by=own, **key)
    run("queue send emails hello", by=own, **key)
    assert "hello" in run("queue receive emails", by=own, **key)
    run(f"user key delete sender {made['id']} --yes", by=own)
    with pytest.raises(CommandFailed):
        run("queue send emails hello", by=own, **key)


def test_a_user_without_permission_is_told_so(run: Run) -> None:
    run("user create nobody --password-stdin", stdin=f"{ALICE[1]}\n")
    own = ("nobody", ALICE[1])
    for typed in ("user list", "user create x --generate", "acl list", "acl add nobody --admin"):
        with pytest.raises(CommandFailed, match="CLUSTER_AUTHORIZATION_FAILED"):
            run(typed, by=own)
