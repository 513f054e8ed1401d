"""`headrace user` against a real broker."""

import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from headrace.cli import http_api
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.main import app
from headrace.testing import Broker
from headrace.wire import Cluster
from tests.waiting import until

Run = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


@pytest.fixture
def run(broker: Broker) -> Iterator[Run]:
    def command(*words: str, stdin: str = "", **environment: str) -> str:
        env = {"HEADRACE_BOOTSTRAP": broker.bootstrap, **environment}
        result = CliRunner().invoke(app, words, env=env, input=stdin)
        if isinstance(result.exception, CommandFailed | BadArgument):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.stdout

    yield command
    with Cluster(broker.bootstrap) as cluster:
        for name, found in cluster.users().items():
            for each in found:
                cluster.delete_credential(name, each.mechanism)


def api_answers(broker: Broker, run: Run, user: str, password: str) -> bool:
    """Whether a user can log in with a password, over the HTTP API."""
    login = {"HEADRACE_USER": user, "HEADRACE_PASSWORD": password, "HEADRACE_HTTP": broker.http_url}
    try:
        run("user", "key", "list", user, **login)
    except CommandFailed as error:
        if "the user name or the password is wrong" not in str(error):
            raise
        return False
    return True


def test_a_users_life(broker: Broker, run: Run) -> None:
    assert run("user", "create", "alice", "--password-stdin", stdin="planted one\n") == "Created the user alice\n"
    assert api_answers(broker, run, "alice", "planted one")
    assert run("user", "list").split() == ["USER", "MECHANISMS", "alice", "SCRAM-SHA-256,", "SCRAM-SHA-512"]
    with pytest.raises(CommandFailed, match="exists already"):
        run("user", "create", "alice", "--generate")
    generated = run("user", "passwd", "alice", "--generate").strip()
    assert len(generated) == 32
    assert api_answers(broker, run, "alice", generated)
    assert not api_answers(broker, run, "alice", "planted one")
    assert run("user", "delete", "alice", "--yes") == "Deleted the user alice\n"
    assert "There are no users" in run("user", "list")


def test_one_mechanism(run: Run) -> None:
    made = json.loads(run("user", "create", "bob", "--generate", "--mechanism", "scram-sha-512", "--json"))
    assert made["mechanisms"] == ["SCRAM-SHA-512"]
    assert len(made["password"]) == 32
    run("user", "passwd", "bob", "--password-stdin", stdin="another\n")
    assert json.loads(run("user", "list", "--json")) == [{"user": "bob", "mechanisms": ["SCRAM-SHA-512"]}]
    with pytest.raises(BadArgument, match="use SCRAM-SHA-512"):
        run("user", "create", "carol", "--generate", "--mechanism", "SCRAM-SHA-521")


def test_passwords_come_from_somewhere(run: Run) -> None:
    with pytest.raises(BadArgument, match="no terminal to ask"):
        run("user", "create", "alice")
    with pytest.raises(BadArgument, match="choose one"):
        run("user", "create", "alice", "--generate", "--password-stdin")
    with pytest.raises(BadArgument, match="is empty"):
        run("user", "create", "alice", "--password-stdin", stdin="\n")
    with pytest.raises(BadArgument, match="encode differently"):
        run("user", "create", "alice", "--password-stdin", stdin="planted\u00ad\n")
    with pytest.raises(BadArgument, match="no colon"):
        run("user", "create", "a:b", "--generate")
    assert "There are no users" in run("user", "list")


def test_a_password_is_asked_for_twice_and_not_shown(broker: Broker, run: Run) -> None:
    screen, terminal = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "headrace", "user", "create", "dora"],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap},
            start_new_session=True,
        ) as process:
            seen = b""
            for prompt in (b"Password of dora: ", b"Repeat for confirmation: "):
                while not seen.endswith(prompt):
                    seen += os.read(screen, 1024)
                os.write(screen, b"planted\n")
            assert process.wait(30) == 0
        while b"Created the user dora" not in seen:
            seen += os.read(screen, 1024)
    finally:
        os.close(screen)
        os.close(terminal)
    assert b"planted" not in seen
    assert api_answers(broker, run, "dora", "planted")


def test_unknown_users_are_answered_with_the_nearest(run: Run) -> None:
    run("user", "create", "alice", "--generate")
    for words in (("passwd", "alcie", "--generate"), ("delete", "alice", "alcie", "--yes")):
        with pytest.raises(CommandFailed, match="there is no user alcie; did you mean alice"):
            run("user", *words)
    assert "alice" in run("user", "list")
    with pytest.raises(BadArgument, match="add --yes"):
        run("user", "delete", "alice")


def test_access_keys(run: Run) -> None:
    run("user", "create", "alice", "--generate")
    made = json.loads(run("user", "key", "create", "alice", "--json"))
    shown = run("user", "key", "create", "alice")
    assert "secret      " in shown
    listed = run("user", "key", "list", "alice")
    assert made["id"] in listed
    assert made["secret"] not in listed
    with pytest.raises(BadArgument, match="add --yes"):
        run("user", "key", "delete", "alice", made["id"])
    assert run("user", "key", "delete", "alice", made["id"], "--yes") == f"Deleted the access key {made['id']}\n"
    with pytest.raises(CommandFailed, match="alice has no access key"):
        run("user", "key", "delete", "alice", made["id"], "--yes")
    with pytest.raises(CommandFailed, match="there is no user bob"):
        run("user", "key", "create", "bob")


def test_a_password_is_not_sent_unencrypted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_api, "check_http_reachable", lambda urls: None)
    login = {"HEADRACE_USER": "alice", "HEADRACE_PASSWORD": "planted", "HEADRACE_HTTP": "http://192.0.2.1:9324"}
    with pytest.raises(CommandFailed, match="is sent over https only"):
        run("user", "key", "list", "alice", **login)


def test_no_password_is_logged(broker: Broker, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run("user", "create", "alice", "--password-stdin", stdin="planted\n")
    api_answers(broker, run, "alice", "planted wrong")
    # A second line of one address within a second is logged at the end of it.
    until(lambda: "failed to authenticate" in caplog.text)
    assert "planted" not in caplog.text
