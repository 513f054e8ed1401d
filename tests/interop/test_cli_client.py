"""The client commands against a real broker: topics, produce, consume, bench, doctor."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.testing.process import BrokerProcess

from .subject import SELDOM

Result = subprocess.CompletedProcess[bytes]
Run = Callable[..., Result]

HEADRACE = [sys.executable, "-m", "headrace"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=SELDOM) as running:
        yield running


@pytest.fixture
def run(broker: BrokerProcess) -> Run:
    def command(*arguments: str, stdin: bytes = b"", fails: bool = False) -> Result:
        environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap}
        result = subprocess.run(
            [*HEADRACE, *arguments], input=stdin, capture_output=True, timeout=60, env=environment, check=False
        )
        assert (result.returncode != 0) is fails, result
        return result

    return command


@pytest.fixture
def topic(run: Run) -> str:
    name = f"cli-{uuid4().hex[:8]}"
    run("topic", "create", name, "--partitions", "3")
    return name


def described(run: Run, topic: str) -> dict:
    return json.loads(run("topic", "describe", topic, "--json").stdout)


def test_create_list_describe_alter_delete(run):
    name = f"cli-{uuid4().hex[:8]}"
    run("topic", "create", name, "--partitions", "2", "--set", "retention.ms=12345")
    listed = json.loads(run("topic", "list", "--json").stdout)
    assert {"topic": name, "partitions": 2} in listed

    run("topic", "alter", name, "--set", "retention.ms=54321", "--set", "segment.bytes=1048576", "--partitions", "4")
    run("topic", "alter", name, "--unset", "segment.bytes")
    description = described(run, name)
    settings = {each["name"]: each for each in description["settings"]}
    assert settings["retention.ms"] == {"name": "retention.ms", "value": "54321", "source": "topic"}
    assert settings["segment.bytes"]["source"] == "default"
    assert [each["partition"] for each in description["partitions"]] == [0, 1, 2, 3]
    text = run("topic", "describe", name).stdout.decode()
    assert "retention.ms" in text
    assert "4 partitions" in text

    run("topic", "delete", name, "--yes")
    assert name not in run("topic", "list").stdout.decode()


def test_creating_a_topic_twice_is_refused_unless_allowed(run, topic):
    assert b"exists" in run("topic", "create", topic, fails=True).stderr
    assert b"exists already" in run("topic", "create", topic, "--if-not-exists").stdout


def test_a_setting_that_is_wrong_is_refused_with_the_reason(run, topic):
    assert b"retention.ms" in run("topic", "create", f"{topic}-x", "--set", "retention.ms=soon", fails=True).stderr
    assert b"no.such" in run("topic", "alter", topic, "--set", "no.such=1", fails=True).stderr


def test_deleting_asks_and_without_a_terminal_refuses(run, topic):
    assert b"--yes" in run("topic", "delete", topic, fails=True).stderr
    assert described(run, topic)["topic"] == topic


def test_a_topic_that_is_not_there(run):
    for command in (("consume",), ("topic", "describe"), ("topic", "truncate")):
        assert b"there is no topic nowhere" in run(*command, "nowhere", fails=True).stderr
    assert b"nowhere" not in run("topic", "list").stdout


def test_lines_in_lines_out(run, topic):
    sent = run("produce", topic, stdin=b"one\ntwo\n\nlast without newline")
    assert sent.stderr.startswith(b"Sent 4 messages in ")
    assert sent.stdout == b""
    got = run("consume", topic, "--from-beginning").stdout
    assert sorted(got.split(b"\n")) == sorted(b"one\ntwo\n\nlast without newline\n".split(b"\n"))


def test_keys_keep_order_and_partition(run, topic):
    lines = [f"k{number % 5}:{number}" for number in range(100)]
    run("produce", topic, "--key-separator", ":", "--compression", "zstd", stdin="\n".join(lines).encode())
    got = run("consume", topic, "--from-beginning", "--keys").stdout.decode().splitlines()
    by_key: dict[str, list[int]] = {}
    for line in got:
        key, value = line.split("\t")
        by_key.setdefault(key, []).append(int(value))
    assert by_key == {f"k{key}": list(range(key, 100, 5)) for key in range(5)}


def test_json_lines_carry_everything_and_copy_a_topic_byte_for_byte(run, topic):
    lines = [
        {
            "key": "k",
            "value": "v",
            "headers": [["h", "1"], ["h", {"base64": "/w=="}]],
            "partition": 2,
            "timestamp": 5000,
        },
        {"key": None, "value": {"base64": "AP8="}, "headers": [], "partition": 1, "timestamp": 6000},
        {"key": "gone", "value": None, "headers": [], "partition": 0, "timestamp": 7000},
        {"key": "", "value": "", "headers": [], "partition": 0, "timestamp": 8000},
    ]
    run("produce", topic, "--json", stdin="\n".join(map(json.dumps, lines)).encode())
    first = run("consume", topic, "--from-beginning", "--format", "json").stdout
    copy = f"{topic}-copy"
    run("topic", "create", copy, "--partitions", "3")
    run("produce", copy, "--json", stdin=first)
    second = run("consume", copy, "--from-beginning", "--format", "json").stdout

    def without_offsets(output: bytes) -> list[dict]:
        messages = [json.loads(line) for line in output.splitlines()]
        for message in messages:
            del message["offset"]
        return sorted(messages, key=lambda message: message["timestamp"])

    assert without_offsets(first) == without_offsets(second) == lines


def test_headers_and_file_argument(run, topic, tmp_path):
    file = tmp_path / "lines.txt"
    file.write_bytes(b"a\nb\n")
    run("produce", topic, str(file), "--header", "source=file", "--partition", "1", "--acks", "1", "--quiet")
    got = [json.loads(line) for line in run("consume", topic, "-p", "1", "-a", "--format", "json").stdout.splitlines()]
    assert [each["value"] for each in got] == ["a", "b"]
    assert all(each["headers"] == [["source", "file"]] for each in got)
    assert b"No such file" in run("produce", topic, str(tmp_path / "none"), fails=True).stderr


def test_positions(run, topic):
    stamped = [{"value": str(number), "partition": 0, "timestamp": 1000 + number} for number in range(10)]
    run("produce", topic, "--json", stdin="\n".join(map(json.dumps, stamped)).encode())

    def values(*arguments: str) -> list[int]:
        return [int(line) for line in run("consume", topic, "--partition", "0", *arguments).stdout.split()]

    assert values("--offset", "7") == [7, 8, 9]
    assert values("--offset", "-2") == [8, 9]
    assert values("--from-beginning", "--max", "3") == [0, 1, 2]
    assert values("--from-time", "1970-01-01T00:00:01.006Z") == [6, 7, 8, 9]
    assert values("--from-time", "0s ago") == []
    assert values("--offset", "10") == []
    assert b"holds the offsets from 0 up to 10" in run("consume", topic, "-p", "0", "-o", "11", fails=True).stderr
    assert b"has no partition 9" in run("consume", topic, "-p", "9", fails=True).stderr


def test_truncate(run, topic):
    run("produce", topic, "--partition", "1", stdin=b"a\nb\nc\nd\n")
    run("topic", "truncate", topic, "--partition", "1", "--before", "3", "--yes")
    assert run("consume", topic, "--from-beginning").stdout == b"d\n"
    run("topic", "truncate", topic, "--yes")
    assert run("consume", topic, "--from-beginning").stdout == b""
    assert described(run, topic)["partitions"][1]["first_offset"] == 4


def test_a_message_that_is_refused_makes_produce_fail(run, topic):
    run("topic", "alter", topic, "--set", "max.message.bytes=1000")
    result = run("produce", topic, stdin=os.urandom(5000).hex().encode(), fails=True)
    assert b"1 message not delivered" in result.stderr


def test_follow_prints_what_comes_and_ends_cleanly_on_ctrl_c(broker, run, topic):
    command = [*HEADRACE, "consume", topic, "--from-beginning", "--follow", "--bootstrap", broker.bootstrap]
    run("produce", topic, stdin=b"before\n")
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert follower.stdout is not None
    try:
        assert follower.stdout.readline() == b"before\n"
        run("produce", topic, stdin=b"after\n")
        assert follower.stdout.readline() == b"after\n"
        follower.send_signal(signal.SIGINT)
        rest, errors = follower.communicate(timeout=60)
    finally:
        follower.kill()
    assert (follower.returncode, rest, errors) == (0, b"", b"")


def test_a_reader_that_stops_early_is_no_error(broker, run, topic):
    run("produce", topic, stdin=b"x" * 100 + b"\n" + b"line\n" * 50_000)
    command = f"{' '.join(HEADRACE)} consume {topic} -a -b {broker.bootstrap} | head -n 1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, b"")


def test_bench_measures_and_leaves_nothing_behind(run):
    before = run("topic", "list").stdout
    command = ("bench", "--messages", "2000", "--size", "100", "--rate", "200", "--seconds", "1", "--json")
    results = json.loads(run(*command).stdout)["results"]
    assert results["produce"]["messages"] == results["consume"]["messages"] == 2000
    assert 0 < results["latency"]["p50_ms"] <= results["latency"]["p99_ms"] <= results["latency"]["max_ms"]
    assert run("topic", "list").stdout == before


def test_the_doctor_is_content_with_a_healthy_broker(run):
    result = run("doctor")
    assert b"speaks Kafka" in result.stdout
    assert b"as you did" in result.stdout
    assert b"problem" not in result.stdout


def test_the_doctor_sees_messages_from_the_future(run, topic):
    run("topic", "alter", topic, "--set", f"message.timestamp.after.max.ms={2**62}")
    run("produce", topic, "--json", stdin=b'{"value": "x", "timestamp": 33000000000000}')
    assert b"in the future" in run("doctor").stdout
    run("topic", "delete", topic, "--yes")


def test_the_settings_of_brokers_are_changed_and_shown(run):
    assert b"cleaner" not in run("cluster", "settings").stdout
    run("cluster", "alter", "--set", "log.cleaner.threads=3")
    lines = [line.split() for line in run("cluster", "settings").stdout.decode().splitlines()]
    assert ["log.cleaner.threads", "3", "all", "brokers", "0", "at", "once"] in lines
    run("cluster", "alter", "--broker", "0", "--set", "log.cleaner.threads=2")
    (broker,) = json.loads(run("cluster", "settings", "--json").stdout)
    (found,) = [each for each in broker["settings"] if each["name"] == "log.cleaner.threads"]
    assert (found["value"], found["source"]) == ("2", "broker")
    run("cluster", "alter", "--broker", "0", "--unset", "log.cleaner.threads")
    run("cluster", "alter", "--unset", "log.cleaner.threads")
    assert b"cleaner" not in run("cluster", "settings").stdout
    refusal = run("cluster", "alter", "--set", "log.cleaner.thread=3", fails=True).stderr
    assert b"did you mean log.cleaner.threads?" in refusal
    assert b"broker 9 is not there, only 0" in run("cluster", "settings", "--broker", "9", fails=True).stderr


def test_a_broker_logs_more_when_it_is_told_to(run, broker):
    run("cluster", "log-level", "debug", "--logger", "headrace.cluster")
    assert b"Broker 0 logs everything from INFO on" in run("cluster", "log-level", "info").stdout
    assert b"headrace.clutser" in run("cluster", "log-level", "info", "--logger", "headrace.clutser", fails=True).stderr


def said(broker: BrokerProcess, *arguments: str) -> str:
    """What a command that fails says, without a process for it."""
    result = CliRunner().invoke(app, [*arguments, "--bootstrap", broker.bootstrap], input="")
    assert result.exit_code != 0, result.output
    return f"{result.output}{result.exception}"


def test_a_misspelt_name_is_answered_with_the_nearest_one(run, broker, tmp_path):
    run("topic", "create", "payments")
    run("queue", "create", "parcels")
    commands: list[tuple[str, ...]] = [
        ("consume",),
        *(("topic", each) for each in ("describe", "truncate", "delete")),
        ("topic", "alter", "--partitions", "2"),
        ("cluster", "reassign", "--replication-factor", "1"),
        ("pipeline", "archive", "--to", str(tmp_path / "archive"), "--once"),
    ]
    for command in commands:
        assert "there is no topic Payment; did you mean payments?" in said(broker, *command, "Payment"), command
    for action in ("describe", "send", "receive", "peek", "purge", "redrive", "delete", "alter"):
        more = {"send": ["x"], "alter": ["--delay", "1s"]}.get(action, [])
        more = ["--yes"] if action in ("purge", "delete") else more
        found = said(broker, "queue", action, "parcel", *more)
        assert "there is no queue parcel; did you mean parcels?" in found, action
    run("group", "reset-offsets", "shipping", "--topic", "payments", "--to-latest", "--execute")
    assert "there is no group shiping; did you mean shipping?" in said(broker, "group", "describe", "shiping")
    deleted = said(broker, "group", "delete", "shipping", "shiping", "--yes")
    assert "there is no group shiping; did you mean shipping?" in deleted
    assert b"shipping" in run("group", "list").stdout
    assert "did you mean" not in said(broker, "topic", "describe", "something-else")
    assert b"did you mean payments?" in run("produce", "payment", stdin=b"x\n").stderr


def test_the_shell_completes_names(run, broker):
    run("topic", "create", "completed-topic")
    run("queue", "create", "completing-queue")
    run("group", "reset-offsets", "complete-group", "--topic", "completed-topic", "--to-latest", "--execute")

    def offered(typed: str, bootstrap: str = broker.bootstrap) -> list[str]:
        environment = {"_HEADRACE_COMPLETE": "complete_bash", "COMP_WORDS": f"headrace {typed}"}
        environment |= {"COMP_CWORD": str(typed.count(" ") + 1), "HEADRACE_BOOTSTRAP": bootstrap}
        return CliRunner().invoke(app, prog_name="headrace", env=environment).output.split()

    # A queue is a topic, too.
    assert offered("topic describe comp") == offered("consume comp") == ["completed-topic", "completing-queue"]
    assert offered("queue send comp") == ["completing-queue"]
    assert offered("group describe comp") == ["complete-group"]
    assert offered("cluster drain ") == ["0"]
    assert offered("topic describe comp", bootstrap="127.0.0.1:1") == []


def test_a_topic_that_cannot_grow_keeps_its_settings(run, topic):
    refused = run("topic", "alter", topic, "--set", "retention.ms=1000", "--partitions", "3", fails=True)
    assert b"cannot grow to 3; nothing was changed" in refused.stderr
    assert all(each["source"] != "topic" for each in described(run, topic)["settings"])


def test_an_advertised_address_where_nobody_is_is_one_sentence(tmp_path):
    with BrokerProcess(tmp_path / "data", settings={**SELDOM, "advertise": "127.0.0.1:1"}) as misled:
        for command in ("topic list", "topic create t", "group list", "consume t", "queue create q", "txn list"):
            found = said(misled, *command.split())
            assert (
                f"the broker at {misled.bootstrap} tells clients to use 127.0.0.1:1, where no broker answers" in found
            )
            assert "--advertise" in found
