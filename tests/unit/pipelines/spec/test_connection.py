"""The section [connection] of a pipeline file: references stay references."""

import os
from pathlib import Path

import pytest

from headrace.pipelines.connection_options import connection_options, credentials_of, spark_options
from headrace.pipelines.control.topic_sinks import topic_sinks
from headrace.pipelines.errors import SpecError
from headrace.pipelines.sink.options import sink_options
from headrace.pipelines.source.options import parse_source_options
from headrace.pipelines.spec.file import SpecFile

PIPELINE = """\
[source]
topic = "orders"
format = "raw"
[sink]
topic = "revenue"
[connection]
user = "alice"
password = "${ORDERS_PASSWORD}"
ca_file = "certs/ca.pem"
verify_hostname = false
"""


def load(tmp_path: Path, text: str, **environment: str) -> SpecFile:
    file = tmp_path / "revenue.toml"
    file.write_text(text)
    return SpecFile(file, {"ORDERS_PASSWORD": "hunter2", **environment})


def test_the_secret_is_not_part_of_the_pipeline(tmp_path: Path) -> None:
    spec = load(tmp_path, PIPELINE).spec
    assert dict(spec.connection) == {
        "user": "alice",
        "password": "${ORDERS_PASSWORD}",
        "ca_file": str(tmp_path / "certs" / "ca.pem"),
        "verify_hostname": "false",
    }
    assert "hunter2" not in repr(spec)
    options = topic_sinks(spec)["sink"]
    assert options["password"] == "${ORDERS_PASSWORD}"
    assert options["verifyHostname"] == "false"
    assert sink_options(options).connection == spec.connection


def test_it_is_resolved_where_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "ORDERS_PASSWORD", "hunter2")
    found = credentials_of(load(tmp_path, PIPELINE).spec.connection)
    assert (found.user, found.password, found.verify_hostname) == ("alice", "hunter2", False)


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        (
            '"${ORDERS_PASSWORD}"',
            '"hunter2"',
            8,
            r"a secret is not written into a pipeline: write password = .\$\{NAME\}",
        ),
        ('"${ORDERS_PASSWORD}"', '"${ORDERS_PASSWORD:-hunter2}"', 8, "a secret is not written"),
        ('"${ORDERS_PASSWORD}"', '"${NOT_SET}"', 8, "NOT_SET} is not set: export NOT_SET"),
        ("user =", "usr =", 7, r"unknown key usr in \[connection\]; did you mean user"),
        ("verify_hostname = false", "verify_hostname = 1", 10, "true or false"),
        ('topic = "revenue"', 'topic = "revenue"\noptions = {password = "hunter2"}', 6, r"belongs into \[connection\]"),
        ('user = "alice"', 'profile = "prod"', 7, "profiles cannot be read"),
    ],
)
def test_a_wrong_connection_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, problem: str
) -> None:
    with pytest.raises(SpecError, match=problem) as caught:
        load(tmp_path, PIPELINE.replace(old, new), XDG_CONFIG_HOME=str(tmp_path))
    assert f"revenue.toml:{line}:" in str(caught.value)


def test_the_brokers_may_come_from_the_profile(tmp_path: Path) -> None:
    (tmp_path / "headrace").mkdir()
    (tmp_path / "headrace" / "config.toml").write_text('[profiles.prod]\nbootstrap = "broker:9093"\n')
    text = PIPELINE.partition("[connection]")[0]
    home = str(tmp_path)
    named = load(tmp_path, text + '[connection]\nprofile = "prod"\n', XDG_CONFIG_HOME=home)
    assert named.spec.bootstrap == "broker:9093"
    assert load(tmp_path, text, XDG_CONFIG_HOME=home, HEADRACE_PROFILE="prod").spec.bootstrap == "broker:9093"
    assert load(tmp_path, text, XDG_CONFIG_HOME=home).spec.bootstrap == "localhost:9092"


def test_options_of_spark() -> None:
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "USER": "alice", "Password": "hunter2", "caFile": "c"}
    options = parse_source_options(given, streaming=True)
    assert options.connection == (("ca_file", "c"), ("password", "hunter2"), ("user", "alice"))
    assert "hunter2" not in repr(options)
    assert spark_options(options.connection) == {"user": "alice", "password": "hunter2", "caFile": "c"}
    assert connection_options({"subscribe": "t"}) == ()
