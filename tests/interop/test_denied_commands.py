"""Commands of a user without permission end with a sentence about it, and without a traceback."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(tls=True, users={"admin": "a-secret", "bob": "b-secret"}, settings=settings) as running:
        yield running


@pytest.mark.parametrize(
    ("user", "command", "sentence"),
    [
        ("bob", ("produce", "orders"), "authorization failed"),
        ("bob", ("queue", "send", "mails", "hello"), "may not ask the brokers"),
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
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
