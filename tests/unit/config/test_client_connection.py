"""Where a client connects to and as whom: arguments, the environment, profiles."""

import logging
from pathlib import Path
from typing import Any

import pytest

from headrace.config.client_connection import PROFILE_VARIABLE, VARIABLES, resolve_connection, resolve_credentials
from headrace.config.load import read_environment
from headrace.config.profiles import profiles_file
from headrace.model.errors import SettingsError

PROD = """
[profiles.prod]
bootstrap = "broker:9093"
http = "https://broker:9324"
user = "alice"
password = "${PROD_PASSWORD}"
access_key = "id:hunter2"
ca_file = "prod-ca.pem"
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with a file of profiles."""
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "PROD_PASSWORD": "from-the-environment"}
    write(environment, PROD)
    return environment


def write(environment: dict[str, str], text: str, mode: int = 0o600) -> Path:
    file = profiles_file(environment)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_nothing_given_is_a_plain_connection_to_this_machine() -> None:
    found = resolve_connection(environment={})
    assert found.bootstrap == "localhost:9092"
    assert found.credentials.is_plain


def test_arguments_win_over_the_environment_and_that_over_the_profile(home: dict[str, str]) -> None:
    profile = resolve_connection(profile="prod", environment=home)
    assert (profile.bootstrap, profile.http, profile.access_key) == ("broker:9093", "https://broker:9324", "id:hunter2")
    assert (profile.credentials.user, profile.credentials.password) == ("alice", "from-the-environment")
    assert profile.credentials.ca_file == str(profiles_file(home).parent / "prod-ca.pem")

    both = home | {PROFILE_VARIABLE: "prod", "HEADRACE_USER": "bob", "HEADRACE_BOOTSTRAP": "other:1"}
    environment = resolve_connection(environment=both)
    assert (environment.bootstrap, environment.credentials.user) == ("other:1", "bob")
    assert environment.credentials.password == "from-the-environment"

    argument = resolve_connection(bootstrap="third:1", user="carol", environment=both)
    assert (argument.bootstrap, argument.credentials.user) == ("third:1", "carol")


def test_a_profile_that_is_chosen_here_is_an_argument(home: dict[str, str]) -> None:
    """Its password is not sent to a broker that a variable happens to name."""
    stale = {"HEADRACE_BOOTSTRAP": "other:1", "HEADRACE_USER": "bob", "HEADRACE_TOKEN": "t", "HEADRACE_TLS": "true"}
    found = resolve_connection(profile="prod", environment=home | stale)
    assert (found.bootstrap, found.credentials.user) == ("broker:9093", "alice")
    assert found.credentials.password == "from-the-environment"
    assert found.credentials.uses_tls


def test_a_token_of_the_environment_replaces_the_password_of_the_profile(home: dict[str, str]) -> None:
    found = resolve_connection(environment=home | {PROFILE_VARIABLE: "prod", "HEADRACE_TOKEN": "t"})
    assert found.credentials.mechanism == "OAUTHBEARER"
    assert found.credentials.token is not None
    assert found.credentials.token() == "t"


@pytest.mark.parametrize(
    ("tls", "uses_tls", "ca_file"),
    [(True, True, ""), ("true", True, ""), ("ca.pem", True, "ca.pem"), ("off", False, ""), (False, False, "")],
)
def test_tls_is_a_switch_or_a_ca_file(tls: bool | str, uses_tls: bool, ca_file: str) -> None:
    found = resolve_connection(tls=tls, environment={}).credentials
    assert (found.uses_tls, found.ca_file) == (uses_tls, ca_file)
    if isinstance(tls, str):
        assert resolve_connection(environment={"HEADRACE_TLS": tls}).credentials == found


def test_arguments_may_refer_to_the_environment() -> None:
    found = resolve_connection(user="alice", password="${PW}", environment={"PW": "hunter2"})
    assert found.credentials.password == "hunter2"
    with pytest.raises(SettingsError, match="password: the environment variable PW is not set"):
        resolve_connection(user="alice", password="${PW}", environment={})


def test_commands_give_secrets(home: dict[str, str]) -> None:
    write(home, '[profiles.p]\nuser = "alice"\npassword_command = "echo hunter2"')
    assert resolve_connection(profile="p", environment=home).credentials.password == "hunter2"
    write(home, '[profiles.p]\ntls = true\ntoken_command = "echo token"')
    token = resolve_connection(profile="p", environment=home).credentials.token
    assert token is not None
    assert token() == "token"
    write(home, '[profiles.p]\nuser = "alice"\npassword_command = "false"')
    with pytest.raises(SettingsError, match="the command 'false' for a secret failed: exit code 1"):
        resolve_connection(profile="p", environment=home)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[profiles.other]", "has no profile prod"),
        ("[profiles.prod]\nusr = 'a'", "unknown key usr; did you mean user"),
        ("[profiles.prod]\nuser = 1", "user must be a text"),
        ("[profiles.prod]\nverify_hostname = 'perhaps'", "verify_hostname is true or false"),
        ("[profiles.prod", "is not valid TOML"),
        ("profiles = 1", "has no profile prod"),
        ("[profiles.prod]\nuser='a'\npassword='${NOT_SET}'", r"\[profiles.prod\] password: .* NOT_SET is not set"),
    ],
)
def test_a_wrong_profile_is_refused_in_words(home: dict[str, str], text: str, reason: str) -> None:
    write(home, text)
    with pytest.raises(SettingsError, match=reason):
        resolve_connection(profile="prod", environment=home)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"profiles cannot be read from .*config\.toml: No such file"):
        resolve_connection(profile="prod", environment={"HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("mode", "secret", "warns"), [(0o644, "pw", True), (0o600, "pw", False), (0o644, "${P}", False)]
)
def test_a_password_that_others_can_read_is_warned_of(
    home: dict[str, str], mode: int, secret: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(home, f'[profiles.prod]\nuser = "a"\npassword = "{secret}"', mode)
    with caplog.at_level(logging.WARNING):
        resolve_connection(profile="prod", environment=home | {"P": "x"})
    assert (f"chmod 600 {file}" in caplog.text) == warns
    assert "pw" not in caplog.text.replace(str(file), "")


def test_secrets_are_not_shown(home: dict[str, str]) -> None:
    found = resolve_connection(profile="prod", environment=home)
    assert "hunter2" not in repr(found)
    assert "from-the-environment" not in repr(found)


def test_an_unknown_argument_is_refused() -> None:
    given: dict[str, Any] = {"usr": "alice"}
    with pytest.raises(SettingsError, match="a connection has no usr"):
        resolve_credentials(given)


def test_a_broker_may_be_started_where_a_client_is_configured() -> None:
    variables = dict.fromkeys([PROFILE_VARIABLE, *VARIABLES.values()], "x")
    assert read_environment(variables) == {}
