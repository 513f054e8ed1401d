"""The faults that alerts are for. Each is a context: the fault holds inside of it, and is undone at its end."""

import itertools
import json
import socket
import struct
import subprocess
import threading
import time
import urllib.error
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import boto3
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace import Client
from headrace.security.tls.dev_certificates import DAYS, make_dev_certificates
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.faults.prometheus import PrometheusProcess
from tests.faults.strace import failing_syncs
from tests.faults.testbed import Testbed
from tests.waiting import until

OPENER = build_opener(ProxyHandler({}))
SMALL_DISK_BROKER = 3
SMALL_DISK_MIB = 256


def create_topic(bed: Testbed, name: str, replicas: Sequence[int] = (1, 2, 3), **settings: str) -> None:
    """A topic with one partition on these brokers, the first of which leads."""
    admin = AdminClient({"bootstrap.servers": bed.cluster.bootstrap})
    named = {key.replace("_", "."): value for key, value in settings.items()}
    admin.create_topics([NewTopic(name, 1, replica_assignment=[list(replicas)], config=named)])[name].result(60)


@contextmanager
def producing(bed: Testbed, topic: str) -> Iterator[None]:
    """A few messages a second."""
    stopping = threading.Event()
    producer = Producer({"bootstrap.servers": bed.cluster.bootstrap, "linger.ms": 0})

    def run() -> None:
        while not stopping.wait(0.2):
            producer.produce(topic, b"more")
            producer.poll(0)

    producer.produce(topic, b"first")
    assert producer.flush(60) == 0
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        assert producer.flush(60) == 0


def _consumer(bed: Testbed, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bed.cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def _catch_up(consumer: Consumer, topic: str) -> None:
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.commit(offsets=[TopicPartition(topic, 0, end)], asynchronous=False)


@contextmanager
def stuck_group(bed: Testbed) -> Iterator[None]:
    """A member that has its partition, and commits nothing more."""
    create_topic(bed, "stuck")
    consumer = _consumer(bed, "stuck")
    try:
        with producing(bed, "stuck"):
            consumer.subscribe(["stuck"])
            until(lambda: consumer.poll(1.0), "a message")
            consumer.commit(offsets=[TopicPartition("stuck", 0, 1)], asynchronous=False)
            yield
        _catch_up(consumer, "stuck")
    finally:
        consumer.close()


@contextmanager
def unattended_group(bed: Testbed) -> Iterator[None]:
    """A group whose only member has left."""
    create_topic(bed, "left")
    with producing(bed, "left"):
        consumer = _consumer(bed, "left")
        consumer.commit(offsets=[TopicPartition("left", 0, 0)], asynchronous=False)
        consumer.close()
        yield
    consumer = _consumer(bed, "left")
    _catch_up(consumer, "left")
    consumer.close()


def _sqs(bed: Testbed) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=bed.cluster.brokers[1].http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )


@contextmanager
def unattended_queue(bed: Testbed) -> Iterator[None]:
    """A message that no worker receives."""
    sqs = _sqs(bed)
    try:
        url = sqs.create_queue(QueueName="letters")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="dear")
        yield
        sqs.purge_queue(QueueUrl=url)
    finally:
        sqs.close()


@contextmanager
def dead_letters(bed: Testbed) -> Iterator[None]:
    """A message that is received more often than its queue allows."""
    sqs = _sqs(bed)
    try:
        dead = sqs.create_queue(QueueName="jobs-dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
        jobs = sqs.create_queue(QueueName="jobs", Attributes={"RedrivePolicy": policy})["QueueUrl"]
        stopping = threading.Event()

        def run() -> None:
            """The message goes to the other queue when it is to be received for the second time."""
            while not stopping.wait(0.5):
                sqs.send_message(QueueUrl=jobs, MessageBody="bad")
                for _ in range(2):
                    sqs.receive_message(QueueUrl=jobs, VisibilityTimeout=0, MaxNumberOfMessages=10)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
        sqs.purge_queue(QueueUrl=jobs)
        sqs.purge_queue(QueueUrl=dead)
    finally:
        sqs.close()


@contextmanager
def open_transaction(bed: Testbed) -> Iterator[None]:
    create_topic(bed, "ledger")
    producer = Producer({"bootstrap.servers": bed.cluster.bootstrap, "transactional.id": "slow-1"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("ledger", b"not committed")
    assert producer.flush(60) == 0
    yield
    producer.abort_transaction(60)


@contextmanager
def full_disk(bed: Testbed) -> Iterator[None]:
    """The disk of one broker is full but for a few blocks: it is not ready any more."""
    url = bed.cluster.brokers[SMALL_DISK_BROKER].http_url
    assert get(url, "/readyz") == "ready\n"
    ballast = bed.data_dir(SMALL_DISK_BROKER).parent / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            piece = bytes(1 << 20)
            while True:
                file.write(piece)
    except OSError:
        pass
    until(lambda: "No space left on device" in get(url, "/readyz"), "the broker says that its disk is full")
    try:
        yield
    finally:
        ballast.unlink()
    until(lambda: get(url, "/readyz") == "ready\n", "the broker is ready again")


def prepare_certificates(folder: Path) -> None:
    """An authority that is old enough to have issued certificates that expire now, and a new certificate."""
    make_dev_certificates(folder, now=_LONG_AGO)
    make_dev_certificates(folder, hosts=["127.0.0.1"], renews=True)


_LONG_AGO = datetime.now(UTC) - timedelta(days=DAYS - 3)


@contextmanager
def expiring_certificate(bed: Testbed) -> Iterator[None]:
    """A certificate for three more days; new files are loaded while the brokers run."""
    folder = bed.folder / "certificates"
    make_dev_certificates(folder, hosts=bed.hosts, renews=True, now=_LONG_AGO)
    yield
    make_dev_certificates(folder, hosts=bed.hosts, renews=True)


@contextmanager
def clock_ahead(bed: Testbed) -> Iterator[None]:
    bed.set_clock(2, 5)
    yield
    bed.set_clock(2, 0)


@contextmanager
def used_up_budget(bed: Testbed) -> Iterator[None]:
    """Requests that are never completed have all of a broker's memory for requests."""
    broker = bed.cluster.brokers[1]
    size = int(str(bed.settings["socket.request.max.bytes"]))
    held = []
    try:
        for _ in range(4):
            connection = socket.create_connection((broker.host, broker.port), 30)
            held.append(connection)
            connection.setblocking(False)
            data = memoryview(struct.pack(">ihhi", size, 18, 0, 1) + bytes(size // 2))
            while data:
                try:
                    data = data[connection.send(data) :]
                except BlockingIOError:
                    break
        yield
    finally:
        for connection in held:
            connection.close()


@contextmanager
def failing_logins(bed: Testbed) -> Iterator[None]:
    """A client with an old password that tries again and again."""
    header = {"Authorization": "Basic " + b64encode(b"billing:old").decode()}
    request = Request(f"{bed.cluster.brokers[1].http_url}/api/v1/health", headers=header)
    for _ in range(350):
        with pytest.raises(urllib.error.HTTPError) as refused:
            OPENER.open(request, timeout=30)
        refused.value.close()
    yield


@contextmanager
def failed_disk(bed: Testbed) -> Iterator[None]:
    """No sync of a broker succeeds any more; a restart, on a disk that works, helps."""
    create_topic(bed, "synced", (2, 1, 3))
    producer = Producer({"bootstrap.servers": bed.cluster.bootstrap, "message.timeout.ms": 5000})
    with failing_syncs(bed.cluster.brokers[2].pid):
        producer.produce("synced", b"lost")
        producer.flush(10)
    yield
    bed.cluster.restart(2, kill=True)
    bed.cluster.await_in_sync()


@contextmanager
def killed_broker(bed: Testbed) -> Iterator[None]:
    """kill -9. One topic has its only replica there, and one needs all replicas."""
    create_topic(bed, "alone", (2,))
    create_topic(bed, "strict", (1, 2, 3), min_insync_replicas="3")
    bed.cluster.await_in_sync()
    bed.cluster.kill(2)
    yield
    bed.cluster.start_broker(2)
    bed.cluster.await_in_sync()


@contextmanager
def stopped_etcd(bed: Testbed) -> Iterator[None]:
    bed.cluster.etcd.kill()
    yield
    bed.cluster.etcd.start()
    bed.cluster.await_ready()


@contextmanager
def slow_etcd(bed: Testbed) -> Iterator[None]:
    """etcd stands still for most of the time, as on a disk that is too slow."""
    etcd, stopping = bed.cluster.etcd, threading.Event()

    def run() -> None:
        while not stopping.is_set():
            etcd.pause()
            stopping.wait(1.5)
            etcd.resume()
            stopping.wait(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


@contextmanager
def etcd_without_space(bed: Testbed) -> Iterator[None]:
    """etcd has used up its quota and takes no writes: when the controller stops, no other broker can become it."""
    etcd = bed.cluster.etcd
    with Cluster(bed.cluster.bootstrap) as cluster:
        controller = cluster.describe().controller
    etcd.kill()
    etcd.args.append(f"--quota-backend-bytes={20 << 20}")
    etcd.start()
    bed.cluster.await_ready()
    number = itertools.count()
    until(lambda: "space exceeded" in etcd_put(bed, f"/ballast/{next(number)}", "x" * (1 << 20)), "etcd is full")
    bed.cluster.kill(controller)
    yield
    etcd.ctl("del", "--prefix", "/ballast/")
    revision = json.loads(etcd.ctl("endpoint", "status", "--write-out=json"))[0]["Status"]["header"]["revision"]
    etcd.ctl("compact", str(revision))
    etcd.ctl("defrag")
    etcd.ctl("alarm", "disarm")
    etcd.args.pop()
    bed.cluster.start_broker(controller)
    bed.cluster.await_in_sync()


def etcd_put(bed: Testbed, key: str, value: str) -> str:
    """What etcdctl prints."""
    command = ["etcdctl", f"--endpoints={bed.cluster.etcd.endpoint}", "put", key]
    done = subprocess.run(command, input=value, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@contextmanager
def hanging_broker(bed: Testbed) -> Iterator[None]:
    """SIGSTOP, for less than the session of that broker."""
    broker = bed.cluster.brokers[2]
    short = broker.settings["broker.session.timeout.ms"]
    broker.settings["broker.session.timeout.ms"] = 120_000
    bed.cluster.restart(2)
    bed.cluster.await_in_sync()
    bed.cluster.pause(2)
    yield
    bed.cluster.resume(2)
    broker.settings["broker.session.timeout.ms"] = short
    bed.cluster.restart(2)
    bed.cluster.await_in_sync()


@contextmanager
def stalled_broker(bed: Testbed) -> Iterator[None]:
    """A broker that had no processor for two seconds."""
    bed.cluster.pause(1)
    time.sleep(2)
    bed.cluster.resume(1)
    yield


@contextmanager
def filling_disk(bed: Testbed) -> Iterator[None]:
    """Something writes to the disk of one broker, slowly."""
    stopping = threading.Event()
    ballast = bed.data_dir(SMALL_DISK_BROKER).parent / "slowly"

    def run() -> None:
        with ballast.open("wb", buffering=0) as file:
            while not stopping.wait(1.0):
                file.write(bytes(50_000))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        ballast.unlink()


def report(bed: Testbed, pipeline: str, state: str, **fields: object) -> None:
    """What a pipeline reports, as `pipelines/report` sends it."""
    body = json.dumps({"instance": "one", "state": state, **fields}).encode()
    url = f"{bed.cluster.brokers[1].http_url}/api/v1/pipelines/{pipeline}/report"
    with OPENER.open(Request(url, body, {"Content-Type": "application/json"}), timeout=30) as answer:
        assert answer.status == 200


def forget(bed: Testbed, pipeline: str) -> None:
    url = f"{bed.cluster.brokers[1].http_url}/api/v1/pipelines/{pipeline}"
    OPENER.open(Request(url, method="DELETE", headers={"Content-Type": "application/json"}), timeout=30).close()


@contextmanager
def failed_pipeline(bed: Testbed) -> Iterator[None]:
    report(bed, "revenue", "failed", is_final=True, last_error="column amount does not exist")
    yield
    forget(bed, "revenue")


@contextmanager
def restarting_pipeline(bed: Testbed) -> Iterator[None]:
    """A pipeline whose supervisor starts it again and again."""
    stopping = threading.Event()

    def run() -> None:
        for restarts in itertools.count():
            report(bed, "flaky", "restarting", restarts=restarts, last_error="connection refused")
            if stopping.wait(2.0):
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    report(bed, "flaky", "stopped", is_final=True)
    forget(bed, "flaky")


@contextmanager
def silent_pipeline(bed: Testbed) -> Iterator[None]:
    """The process of a pipeline was killed."""
    report(bed, "gone", "running")
    yield
    report(bed, "gone", "stopped", is_final=True)


@contextmanager
def careless_broker(watcher: PrometheusProcess, bed: Testbed) -> Iterator[None]:
    """One more broker, open to the network, and started without the master key of a topic."""
    brokers = [each.http_url for each in bed.cluster.brokers.values()]
    key = {"encryption.master.key": b64encode(bytes(32)).decode()}
    with BrokerProcess(bed.folder / "open", settings=key) as one, Client(one.bootstrap) as client:
        client.topics.create("locked", settings={"encryption.at.rest": "true"})
    settings = {"insecure": True, "http.listen": "127.0.0.1:0"}
    with BrokerProcess(bed.folder / "open", host="0.0.0.0", settings=settings) as one:
        watcher.set_targets([*brokers, one.http_url])
        yield
        watcher.set_targets(brokers)


def get(url: str, path: str) -> str:
    """The body of an answer, of any status."""
    try:
        with OPENER.open(url + path, timeout=30) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


Fault = Callable[[Testbed], Any]
