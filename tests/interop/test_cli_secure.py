"""`headrace secure` against running brokers: one, and a cluster that goes on while it is secured."""

import json
import socket
import ssl
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import free_port
from headrace.testing.process import BrokerProcess
from tests.upgrade.release import unpack
from tests.waiting import until


def secure(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "headrace", "secure", "--json", *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def client_settings(port: int, facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": facts["user"],
        "sasl.password": facts["password"],
        "ssl.ca.location": facts["ca"],
    }


def test_a_running_broker_is_secured_in_place(tmp_path: Path) -> None:
    port, registry = free_port(), free_port()
    with BrokerProcess(tmp_path / "data", settings={"registry.listen": f"127.0.0.1:{registry}"}) as broker:
        plain = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        producer = Producer(plain)
        producer.produce("orders", b"before")
        assert producer.flush(30) == 0
        arguments = ("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{port}")
        planned = secure(*arguments, "--dry-run")
        assert "password" not in planned
        assert not (tmp_path / "data" / "security.toml").exists()

        with socket.create_server(("127.0.0.1", port)), pytest.raises(subprocess.CalledProcessError) as refused:
            secure(*arguments)
        assert "nothing was changed" in refused.value.stderr
        assert not (tmp_path / "data" / "security").exists()

        with pytest.raises(subprocess.CalledProcessError) as refused:
            secure(*arguments, "--host", f"127.0.0.1:{port}")
        assert "without a port" in refused.value.stderr
        assert not (tmp_path / "data" / "security").exists()

        facts = secure(*arguments, "--host", "127.0.0.1")
        assert facts["bootstrap"] == f"127.0.0.1:{port}"
        topics = AdminClient(client_settings(port, facts)).list_topics(timeout=30).topics
        assert "orders" in topics
        with pytest.raises(KafkaException):
            AdminClient({**client_settings(port, facts), "sasl.password": "wrong", "log_level": 0}).list_topics(
                timeout=2
            )
        assert facts["password"] not in broker.stderr
        for path in (tmp_path / "data").rglob("*"):
            assert not path.is_file() or facts["password"].encode() not in path.read_bytes()

        sqs = boto3.client(
            "sqs",
            endpoint_url=broker.http_url.replace("http://", "https://"),
            region_name="us-east-1",
            aws_access_key_id=facts["access_key"],
            aws_secret_access_key=facts["secret_key"],
            verify=facts["ca"],
        )
        url = sqs.create_queue(QueueName="emails")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="hello")
        assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"

        request = Request(f"https://127.0.0.1:{registry}/subjects")
        login = b64encode(f"{facts['user']}:{facts['password']}".encode()).decode()
        request.add_header("Authorization", f"Basic {login}")
        with urlopen(request, timeout=30, context=ssl.create_default_context(cafile=facts["ca"])) as answer:
            assert answer.read() == b"[]"

        settings = (tmp_path / "data" / "security.toml").read_text()
        starts = broker.stderr.count("this is headrace")
        for more in ((), ("--host", "127.0.0.1")):
            again = secure("--data-dir", str(tmp_path / "data"), *more)
            assert "password" not in again
            assert "done already" in again["actions"][0]
        with pytest.raises(subprocess.CalledProcessError) as refused:
            secure("--data-dir", str(tmp_path / "data"), "--host", "elsewhere.example.org")
        assert "is not for elsewhere.example.org: remove broker.pem there" in refused.value.stderr
        assert broker.stderr.count("this is headrace") == starts, "what is done already needs no restart"
        assert (tmp_path / "data" / "security.toml").read_text() == settings
        with pytest.raises(subprocess.CalledProcessError, match="exit status 1"):
            secure(*arguments, "--step", "1")
        assert "orders" in AdminClient(client_settings(port, facts)).list_topics(timeout=30).topics


def test_a_broker_with_data_of_a_version_without_users_is_left_as_it_is(tmp_path: Path) -> None:
    unpack("0.1", "single-stopped", tmp_path / "data")
    with BrokerProcess(tmp_path / "data") as broker:
        arguments = ("--data-dir", str(tmp_path / "data"), "--listen", f"127.0.0.1:{free_port()}")
        with pytest.raises(subprocess.CalledProcessError) as refused:
            secure(*arguments)
        assert "headrace cluster upgrade" in refused.value.stderr
        assert not (tmp_path / "data" / "security.toml").exists()
        subprocess.run(
            [sys.executable, "-m", "headrace", "cluster", "upgrade", "--yes", "--bootstrap", broker.bootstrap],
            check=True,
            capture_output=True,
            timeout=60,
        )
        assert "password" in secure(*arguments)


def test_a_cluster_is_secured_step_by_step_while_clients_go_on(tmp_path: Path) -> None:
    ports = {1: free_port(), 2: free_port()}
    with ClusterProcesses(tmp_path, brokers=2) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for created in admin.create_topics([NewTopic("orders", 2, 2)]).values():
            created.result(30)
        facts: dict[str, Any] = {}
        sent = 0
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0})
        for step in (1, 2, 3):
            for broker_id, port in ports.items():
                done = secure(
                    *("--data-dir", str(tmp_path / f"broker-{broker_id}"), "--listen", f"127.0.0.1:{port}"),
                    *("--security-dir", str(tmp_path / "security"), "--step", str(step)),
                )
                facts = facts or done
                if step < 3 and broker_id == 1:
                    with pytest.raises(subprocess.CalledProcessError) as refused:
                        secure(
                            *("--data-dir", str(tmp_path / "broker-1"), "--security-dir", str(tmp_path / "security")),
                            *("--step", str(step + 1)),
                        )
                    assert f"broker 2 has not done step {step}" in refused.value.stderr
                if step < 3:
                    for _ in range(100):
                        producer.produce("orders", b"x")
                        sent += 1
                    assert producer.flush(60) == 0
        secured = {**client_settings(ports[1], facts), "acks": "all"}
        admin = AdminClient(secured)
        until(lambda: {each.port for each in admin.list_topics(timeout=30).brokers.values()} == set(ports.values()))
        consumer = Consumer({**secured, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        seen = 0
        while seen < sent:
            batch = consumer.consume(1000, 30)
            assert batch
            seen += len([message for message in batch if message.error() is None])
        consumer.close()
        assert seen == sent


@pytest.mark.slow
def test_a_step_that_would_cut_a_broker_off_is_refused(tmp_path: Path) -> None:
    """A broker is down, then behind; a step is left out; a broker that cannot be asked."""
    ports = {1: free_port(), 2: free_port(), 3: free_port()}
    with ClusterProcesses(tmp_path, brokers=3) as cluster:

        def do(broker_id: int, step: int, *more: str) -> dict[str, Any]:
            return secure(
                *("--data-dir", str(tmp_path / f"broker-{broker_id}"), "--listen", f"127.0.0.1:{ports[broker_id]}"),
                *("--security-dir", str(tmp_path / "security"), "--step", str(step), *more),
            )

        def refused(broker_id: int, step: int) -> str:
            settings = tmp_path / f"broker-{broker_id}" / "security.toml"
            before = settings.read_text() if settings.exists() else ""
            with pytest.raises(subprocess.CalledProcessError) as failure:
                do(broker_id, step)
            assert (settings.read_text() if settings.exists() else "") == before
            text: str = failure.value.stderr
            assert "nothing was changed" in text
            return text

        assert "step 1 is not done on this broker" in refused(1, 2)
        cluster.stop(3)
        admin = AdminClient({"bootstrap.servers": cluster.brokers[1].bootstrap})
        until(lambda: 3 not in admin.list_topics(timeout=30).brokers)
        assert "step 1 on broker 3 as well" in do(1, 1)["actions"][-1]
        do(2, 1)
        assert "broker 3 is down: start it and run step 1 there" in refused(1, 2)
        cluster.start_broker(3)
        assert "broker 3 has not done step 1" in refused(1, 2)
        do(3, 1)
        do(1, 2)
        assert "step 2 is not done on this broker" in refused(2, 3)
        do(2, 2)
        assert "brokers 3 have" not in (text := refused(1, 3))
        assert "broker 3 has not done step 2" in text
        cluster.stop(2)
        assert "broker 2 is down" in refused(3, 2)
        assert "is not running" in refused(2, 3)
        do(3, 2, "--unchecked")
