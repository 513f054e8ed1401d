"""Schemas over a link while the leader of the registry here is killed, and the source restarts."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from headrace.testing import Broker
from headrace.testing.cluster import ClusterProcesses
from tests.interop.registry_client import RegistryClient
from tests.interop.test_link_schemas import listed
from tests.interop.test_schema_checks_cluster import leader_of
from tests.waiting import until

SUBJECTS = 150


def schema(number: int, version: int) -> dict[str, Any]:
    fields = [{"name": f"f{each}", "type": "long", "default": 0} for each in range(version)]
    return {"type": "record", "name": f"R{number}", "fields": fields}


def stored(client: RegistryClient) -> dict[tuple[str, int], tuple[int, str]]:
    """Every version with its id and GUID."""
    found = client.call("GET", "/schemas?deleted=true")
    return {(each["subject"], each["version"]): (each["id"], each["guid"]) for each in found}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schemas_follow_through_kills_on_either_side(tmp_path: Path) -> None:
    settings = {"link.refresh.interval.ms": 200}
    with Broker() as source, ClusterProcesses(tmp_path, brokers=3, settings=settings) as cluster:
        there = RegistryClient(f"{source.http_url}/registry")
        for number in range(SUBJECTS):
            there.register(f"s{number}", schema(number, 1))
        link = {"name": "eu", "bootstrap": [source.bootstrap], "topics": ["none"], "sync": ["schemas"]}
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{cluster.http_url}/api/v1/links", json.dumps(link).encode(), headers), timeout=60):
            pass
        until(lambda: listed(RegistryClient(f"{cluster.http_url}/registry")))
        leader = leader_of(cluster, "_schemas")
        cluster.kill(leader)
        for number in range(0, SUBJECTS, 2):
            there.register(f"s{number}", schema(number, 2))
        for number in range(0, SUBJECTS, 3):
            there.call("DELETE", f"/subjects/s{number}")
        for number in range(0, SUBJECTS, 6):
            there.call("DELETE", f"/subjects/s{number}?permanent=true")
        source.restart()
        there = RegistryClient(f"{source.http_url}/registry")
        wanted = stored(there)
        here = RegistryClient(f"{cluster.http_url}/registry")
        until(lambda: stored(here) == wanted, lambda: f"{len(stored(here))} of {len(wanted)} versions")
        cluster.start_broker(leader)
        cluster.await_in_sync()
        cluster.kill(leader_of(cluster, "_schemas"))
        there.register("last", schema(0, 7))
        wanted = stored(there)
        here = RegistryClient(f"{cluster.http_url}/registry")
        until(lambda: stored(here) == wanted)
        with urlopen(f"{cluster.http_url}/api/v1/links/eu", timeout=60) as answer:
            assert json.load(answer)["sync_problems"] == {}
