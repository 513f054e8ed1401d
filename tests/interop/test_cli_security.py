"""Commands with credentials: profiles and the environment; what does not fit is said within seconds."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing import Broker

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD}) as running:
        yield running


@pytest.fixture(scope="module")
def home(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A configuration folder with profiles: one that fits, one with a wrong password."""
    folder = tmp_path_factory.mktemp("config")
    file = folder / "headrace" / "config.toml"
    file.parent.mkdir()
    common = f'bootstrap = "{broker.bootstrap}"\nuser = "alice"\nca_file = "{broker.ca_file}"\n'
    file.write_text(
        f'[profiles.prod]\n{common}password_command = "echo {PASSWORD}"\n'
        f'[profiles.wrong]\n{common}password = "hunter2"\n'
    )
    file.chmod(0o600)
    return folder


def run(
    home: Path, *arguments: str, code: int = 0, text: str = "", environment: dict[str, str] | None = None
) -> tuple[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        env={**ours, "XDG_CONFIG_HOME": str(home), **(environment or {})},
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert "hunter2" not in done.stdout + done.stderr
    return done.stdout, done.stderr


def test_every_command_uses_the_profile(home: Path) -> None:
    run(home, "--profile", "prod", "topic", "create", "orders", "--partitions", "1")
    run(home, "produce", "orders", "--profile", "prod", text="tea\n")
    assert run(home, "consume", "orders", "--from-beginning", "--profile", "prod")[0] == "tea\n"
    chosen = {"HEADRACE_PROFILE": "prod"}
    assert "orders" in run(home, "topic", "describe", "orders", environment=chosen)[0]
    assert "no groups" in run(home, "group", "list", environment=chosen)[0]
    assert "1 broker" in run(home, "cluster", "status", environment=chosen)[0]
    run(home, "txn", "list", environment=chosen)
    run(home, "queue", "create", "emails", environment=chosen)
    assert "emails" in run(home, "queue", "list", environment=chosen)[0]


def test_a_profile_of_the_command_line_comes_before_the_environment(home: Path) -> None:
    stale = {
        "HEADRACE_BOOTSTRAP": "127.0.0.1:1",
        "HEADRACE_USER": "bob",
        "HEADRACE_PASSWORD": "x",
        "HEADRACE_TLS": "on",
    }
    run(home, "topic", "list", "--profile", "prod", environment=stale)
    run(home, "--profile", "prod", "cluster", "status", environment=stale)
    _, error = run(home, "topic", "list", code=1, environment={**stale, "HEADRACE_PROFILE": "prod"})
    assert "127.0.0.1:1" in error


def test_the_environment_is_enough(home: Path, broker: Broker) -> None:
    variables = {
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "HEADRACE_USER": "alice",
        "HEADRACE_PASSWORD": PASSWORD,
        "HEADRACE_CA_FILE": str(broker.ca_file),
        "HEADRACE_SASL_MECHANISM": "SCRAM-SHA-256",
    }
    run(home, "topic", "list", environment=variables)


def test_what_does_not_fit_is_said(home: Path, broker: Broker) -> None:
    _, error = run(home, "topic", "list", "--profile", "wrong", code=1)
    assert "does not let in the user alice" in error
    _, error = run(home, "cluster", "status", "--profile", "wrong", code=1)
    assert "does not let in the user alice" in error
    _, error = run(home, "topic", "list", "--profile", "prd", code=2)
    assert "has no profile prd; did you mean prod?" in error
    _, error = run(home, "topic", "list", "--bootstrap", broker.bootstrap, code=1)
    assert "expects TLS: set HEADRACE_TLS=true" in error
    wrong = {"HEADRACE_PROFILE": "prod", "HEADRACE_CA_FILE": __file__}
    _, error = run(home, "topic", "list", code=2, environment=wrong)
    assert "has no certificate" in error


def test_a_user_is_expected(home: Path) -> None:
    with Broker(users={"alice": PASSWORD}) as plain:
        _, error = run(home, "topic", "list", "--bootstrap", plain.bootstrap, code=1)
        assert "it may expect a user; set HEADRACE_USER and HEADRACE_PASSWORD" in error
