"""Commands with credentials: profiles and the environment; what does not fit is said within seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config.client_connection import PROFILE_VARIABLE, VARIABLES
from headrace.model.errors import HeadraceError
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
    home: Path, *arguments: str, fails: bool = False, text: str = "", environment: dict[str, str] | None = None
) -> str:
    """What a command prints, or its error. It runs in this process, which takes a tenth of the time."""
    # Those that are not given are removed, and all are restored.
    variables = dict.fromkeys((PROFILE_VARIABLE, *VARIABLES.values())) | {"XDG_CONFIG_HOME": str(home)}
    result = CliRunner().invoke(app, arguments, input=text, env={**variables, **(environment or {})})
    assert isinstance(result.exception, HeadraceError | None), result.exception
    assert (result.exit_code != 0) is fails, (result.output, result.exception)
    printed = result.output if result.exception is None else str(result.exception)
    assert PASSWORD not in printed
    assert "hunter2" not in printed
    return printed


def test_every_command_uses_the_profile(home: Path) -> None:
    run(home, "--profile", "prod", "topic", "create", "orders", "--partitions", "1")
    run(home, "produce", "orders", "--profile", "prod", text="tea\n")
    assert run(home, "consume", "orders", "--from-beginning", "--profile", "prod") == "tea\n"
    chosen = {"HEADRACE_PROFILE": "prod"}
    assert "orders" in run(home, "topic", "describe", "orders", environment=chosen)
    assert "no groups" in run(home, "group", "list", environment=chosen)
    assert "1 broker" in run(home, "cluster", "status", environment=chosen)
    run(home, "txn", "list", environment=chosen)
    run(home, "queue", "create", "emails", environment=chosen)
    assert "emails" in run(home, "queue", "list", environment=chosen)


def test_a_profile_of_the_command_line_comes_before_the_environment(home: Path) -> None:
    stale = {
        "HEADRACE_BOOTSTRAP": "127.0.0.1:1",
        "HEADRACE_USER": "bob",
        "HEADRACE_PASSWORD": "x",
        "HEADRACE_TLS": "on",
    }
    run(home, "topic", "list", "--profile", "prod", environment=stale)
    run(home, "--profile", "prod", "cluster", "status", environment=stale)
    error = run(home, "topic", "list", environment={**stale, "HEADRACE_PROFILE": "prod"}, fails=True)
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
    error = run(home, "topic", "list", "--profile", "wrong", fails=True)
    assert "does not let in the user alice" in error
    error = run(home, "cluster", "status", "--profile", "wrong", fails=True)
    assert "does not let in the user alice" in error
    error = run(home, "topic", "list", "--profile", "prd", fails=True)
    assert "has no profile prd; did you mean prod?" in error
    error = run(home, "topic", "list", "--bootstrap", broker.bootstrap, fails=True)
    assert "expects TLS: set HEADRACE_TLS=true" in error
    wrong = {"HEADRACE_PROFILE": "prod", "HEADRACE_CA_FILE": __file__}
    error = run(home, "topic", "list", environment=wrong, fails=True)
    assert "has no certificate" in error


def test_a_user_is_expected(home: Path) -> None:
    with Broker(users={"alice": PASSWORD}) as plain:
        error = run(home, "topic", "list", "--bootstrap", plain.bootstrap, fails=True)
        assert "it may expect a user; set HEADRACE_USER and HEADRACE_PASSWORD" in error
