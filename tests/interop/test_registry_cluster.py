"""The leader of the registry is killed while clients register schemas through two other brokers at once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.testing.cluster import ClusterProcesses
from tests.faults.test_registry_kill import RegisteringClient, check

from .registry_client import RegistryClient
from .test_schema_checks_cluster import leader_of

CLIENTS = 4
SCHEMAS = 80


def test_ids_are_unique_and_none_is_lost_when_the_leader_of_the_registry_is_killed(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3) as cluster, ThreadPoolExecutor(CLIENTS) as pool:
        RegistryClient(f"{cluster.brokers[1].http_url}/registry").call("GET", "/subjects")
        cluster.await_in_sync()
        leader = leader_of(cluster, "_schemas")
        urls = [broker.http_url for number, broker in cluster.brokers.items() if number != leader]
        is_halfway = threading.Barrier(CLIENTS + 1, timeout=60)

        def work(place: int) -> dict[int, int]:
            client, given = RegisteringClient(urls, place), {}
            for count, number in enumerate(range(place, SCHEMAS, CLIENTS)):
                if count == SCHEMAS // CLIENTS // 2:
                    is_halfway.wait()
                given[number] = client.register(number)
            return given

        results = [pool.submit(work, place) for place in range(CLIENTS)]
        is_halfway.wait()
        cluster.kill(leader)
        ids = {number: given for each in results for number, given in each.result(120).items()}
        assert len(ids) == SCHEMAS
        check(urls, ids)
