"""`--profile` and the environment of a command."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.profile import forget_connection
from headrace.config.client_connection import PROFILE_VARIABLE, VARIABLES, resolve_connection
from headrace.model.errors import SettingsError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "headrace" / "config.toml"
    file.parent.mkdir()
    file.write_text('[profiles.prod]\nbootstrap = "127.0.0.1:1"\nuser = "alice"\npassword_command = "echo hunter2"\n')
    for variable in (PROFILE_VARIABLE, *VARIABLES.values()):
        # Set first, so that what a command leaves there is removed after the test.
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize("arguments", [["--profile", "prod", "topic", "list"], ["topic", "list", "--profile", "prod"]])
def test_a_profile_of_the_command_line_is_used_without_its_secret_in_the_environment(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", "127.0.0.1:2")
    monkeypatch.setenv("HEADRACE_PASSWORD", "stale")
    result = CliRunner().invoke(app, arguments)
    assert "127.0.0.1:1" in str(result.exception)
    assert os.environ["HEADRACE_PROFILE"] == "prod"
    assert "hunter2" not in os.environ.values()
    found = resolve_connection()
    assert (found.bootstrap, found.credentials.user, found.credentials.password) == ("127.0.0.1:1", "alice", "hunter2")


def test_a_profile_that_does_not_exist() -> None:
    result = CliRunner().invoke(app, ["group", "list", "--profile", "prd"])
    assert isinstance(result.exception, SettingsError)
    assert "did you mean prod?" in str(result.exception)


def test_a_command_with_brokers_of_its_own_forgets_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PROFILE", "prod")
    monkeypatch.setenv("HEADRACE_USER", "bob")
    forget_connection()
    assert resolve_connection().credentials.is_plain
