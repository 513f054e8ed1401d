"""Brokers that log in to each other over TLS with SCRAM, while certificates are replaced and brokers killed."""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing.checkers import report
from headrace.testing.cluster import ClusterProcesses
from headrace.testing.etcd import is_installed
from tests.faults.certificates import FAULTS, current_serial_number, served_serial_number
from tests.faults.episodes import run
from tests.faults.nemesis import possible
from tests.faults.testbed import BROKERS, Testbed
from tests.interop import subject
from tests.waiting import until

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about a cluster of Headrace")

SHORT = ("damage and renew certificates", "kill leader")
EPISODES = int(os.environ.get("FAULT_EPISODES", "24"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
LOGIN_REFUSED = "refused the login of this one"


@pytest.mark.timeout(600)
def test_certificates_are_renewed_under_load(tmp_path: Path, say: Callable[[str], None]) -> None:
    with Testbed(tmp_path, is_secured=True, with_network=False, with_disks=False) as bed:
        first = current_serial_number(bed)
        verdict = run(
            bed, tmp_path, SHORT, seed=1, per_second=50, is_small=True, others=FAULTS, say=say, check=is_served
        )
        assert current_serial_number(bed) != first
    assert not verdict.anomalies, report(verdict.anomalies)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_fault_between_rotations(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Certificates are renewed, damaged and of another authority, each time among faults of all kinds."""
    say(f"FAULT_SEED={SEED} FAULT_EPISODES={EPISODES}")
    with Testbed(tmp_path, is_secured=True) as bed:
        others, rotations = possible(bed), list(FAULTS)
        Random(SEED).shuffle(others)
        order = [one for pair in zip(others, rotations * len(others), strict=False) for one in pair][:EPISODES]
        verdict = run(bed, tmp_path, order, seed=SEED, per_second=50, others=FAULTS, say=say, check=is_served)
    assert not verdict.anomalies, report(verdict.anomalies)


def is_served(bed: Testbed) -> None:
    """The current certificate is the one that every broker answers with."""
    assert {served_serial_number(bed, broker_id) for broker_id in BROKERS} == {current_serial_number(bed)}


@pytest.mark.timeout(300)
def test_a_broker_with_a_wrong_password_harms_no_other(tmp_path: Path) -> None:
    if not is_installed():
        pytest.skip("etcd is not installed")
    make_dev_certificates(tmp_path / "certificates")
    wrong = "a wrong password"
    with ClusterProcesses(
        tmp_path,
        brokers=2,
        certificates=tmp_path / "certificates",
        settings={"min.insync.replicas": 2, "replica.lag.time.max.ms": 2000},
        settings_of={3: {"inter.broker.password": wrong}},
    ) as cluster:
        third = cluster.add_broker(3)
        client = {"bootstrap.servers": cluster.brokers[1].bootstrap}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("orders", 1, replica_assignment=[[1, 2, 3]])])["orders"].result(30)
        until(lambda: LOGIN_REFUSED in third.stderr, "a line in the log of the third broker")
        line = next(line for line in third.stderr.splitlines() if LOGIN_REFUSED in line)
        assert "cannot be reached" in line
        producer = Producer({**client, "acks": "all"})
        for number in range(100):
            producer.produce("orders", str(number))
        assert producer.flush(60) == 0
        replicas = admin.list_topics("orders", timeout=30).topics["orders"].partitions[0]
        assert sorted(replicas.isrs) == [1, 2]
        assert all(LOGIN_REFUSED not in cluster.brokers[each].stderr for each in (1, 2))
        assert all(wrong not in broker.stderr for broker in cluster.brokers.values())

        cluster.stop(3)
        third.settings["inter.broker.password"] = cluster.brokers[1].settings["inter.broker.password"]
        cluster.start_broker(3)
        cluster.await_in_sync()
