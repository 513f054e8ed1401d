"""`headrace serve` as a process: what it prints, how it ends, and what it says when it cannot start."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.config.broker_rows import REGISTRY_PORT_DISTANCE
from headrace.testing.process import BrokerProcess

HEADRACE = [sys.executable, "-m", "headrace"]


def start_and_fail(*arguments: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """The one sentence on stderr of a broker that does not start."""
    result = subprocess.run(
        [*HEADRACE, "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        check=False,
    )
    assert result.returncode == 2, result
    assert result.stdout == ""
    assert result.stderr.startswith("headrace: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def send(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        got = consumer.consume(count, 60)
        return [int(message.value()) for message in got if message.error() is None]
    finally:
        consumer.close()


def test_one_line_when_ready_and_exit_code_0_on_sigterm(tmp_path):
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        assert broker.ready_line.startswith(f"Headrace is ready on 127.0.0.1:{broker.port} ")
        assert str(tmp_path / "data") in broker.ready_line
        assert "cluster " in broker.ready_line
        assert broker.terminate() == 0
    assert not broker.is_running


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ready_within_a_second(tmp_path):
    broker = BrokerProcess(tmp_path / "data")
    times = []
    with broker:
        for _ in range(3):
            # On a machine that is busy with something else the clock measures that: then the CPU's time counts.
            times.append(min(broker.ready_after_s, cpu_seconds(broker.pid)))
            broker.restart()
    assert min(times) < 1.0, times


@pytest.mark.parametrize("kill", [False, True])
def test_what_was_acknowledged_is_there_after_a_restart(tmp_path, kill):
    with BrokerProcess(tmp_path / "data") as broker:
        send(broker.bootstrap, "kept", 500)
        broker.restart(kill=kill)
        assert read(broker.bootstrap, "kept", 500) == list(range(500))


def test_ctrl_c_is_as_good_as_sigterm(tmp_path):
    process = subprocess.Popen(
        [*HEADRACE, "serve", "--data-dir", str(tmp_path / "data"), "--kafka-listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        process.send_signal(2)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in errors


def test_a_port_in_use_is_all_that_is_reported(tmp_path):
    """The port of the registry follows from that of Kafka, so that it is in use by a broker on the same port, too."""
    with socket.create_server(("127.0.0.1", 0)) as taken, contextlib.ExitStack() as registry:
        port = taken.getsockname()[1]
        with contextlib.suppress(OSError):
            registry.enter_context(socket.create_server(("127.0.0.1", port + REGISTRY_PORT_DISTANCE)))
        sentence = start_and_fail("--kafka-listen", f"127.0.0.1:{port}", cwd=tmp_path)
    assert f"127.0.0.1:{port}" in sentence
    assert "--kafka-listen" in sentence


def test_a_data_dir_that_another_broker_uses(tmp_path):
    with BrokerProcess(tmp_path / "data"):
        sentence = start_and_fail("--data-dir", "data", "--kafka-listen", "127.0.0.1:0", cwd=tmp_path)
    assert "data" in sentence


def test_a_data_dir_that_belongs_to_something_else(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"miaow")
    sentence = start_and_fail("--data-dir", "photos", "--kafka-listen", "127.0.0.1:0", cwd=tmp_path)
    assert "photos" in sentence
    assert sorted(os.listdir(tmp_path / "photos")) == ["cat.jpg"]


def test_a_data_dir_that_is_a_file(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    assert "file" in start_and_fail("--data-dir", "file", "--kafka-listen", "127.0.0.1:0", cwd=tmp_path)


def test_a_data_dir_that_cannot_be_written():
    # /proc refuses new directories to everybody, root included.
    sentence = start_and_fail("--data-dir", "/proc/headrace", "--kafka-listen", "127.0.0.1:0", cwd=Path("/tmp"))
    assert "/proc/headrace" in sentence


def test_settings_come_from_flags_then_environment_then_file(tmp_path):
    config = tmp_path / "headrace.toml"
    config.write_text("[num]\npartitions = 2\n\n[log.retention]\nms = 1111\n\n[log.segment]\nbytes = 1048576\n")
    broker = BrokerProcess(
        tmp_path / "data",
        settings={"num.partitions": 6},
        args=["--config", str(config)],
        env={"HEADRACE_LOG_RETENTION_MS": "2222", "HEADRACE_NUM_PARTITIONS": "4"},
    )
    with broker:
        client = [*HEADRACE, "topic"]
        where = ["--bootstrap", broker.bootstrap]
        subprocess.check_output([*client, "create", "t", *where], timeout=60)
        shown = subprocess.run(
            [*client, "describe", "t", "--json", *where], check=True, capture_output=True, timeout=60
        )
    topic = json.loads(shown.stdout)
    values = {each["name"]: each["value"] for each in topic["settings"]}
    assert len(topic["partitions"]) == 6
    assert (values["retention.ms"], values["segment.bytes"]) == ("2222", "1048576")


@pytest.mark.parametrize(
    ("arguments", "env", "sentence"),
    [
        (("--set", "num.partitions=none"), {}, "num.partitions=none is not a whole number"),
        ((), {"HEADRACE_NUM_PARTITION": "1"}, "HEADRACE_NUM_PARTITION"),
        (("--advertise", ":9092"), {}, "advertise"),
    ],
)
def test_a_bad_setting(tmp_path, arguments, env, sentence):
    assert sentence in start_and_fail("--kafka-listen", "127.0.0.1:0", *arguments, cwd=tmp_path, env=env)
    assert os.listdir(tmp_path) == []


def test_the_advertised_address_is_what_clients_are_told_and_what_the_doctor_checks(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        wrong = f"127.0.0.1:{unused.getsockname()[1]}"
    with BrokerProcess(tmp_path / "data", args=["--advertise", wrong]) as broker:
        result = subprocess.run(
            [*HEADRACE, "doctor", "--bootstrap", broker.bootstrap],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert result.returncode == 1
    assert f"tells clients to use {wrong}, and from here that fails" in result.stdout
    assert f"--advertise {broker.bootstrap}" in result.stdout
