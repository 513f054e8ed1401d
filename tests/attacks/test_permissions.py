"""Users who want more than they may: permissions that are taken away, and posing as a broker."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from headrace.model.errors import TopicNotAuthorized
from headrace.model.queue_state import StateChangesPage, StatePosition
from headrace.replication.calls import encode_call, read_answer
from headrace.replication.link_calls import AskQueueState
from headrace.replication.peers import BROKER_SOFTWARE
from headrace.testing import Broker
from tests.interop.raw_client import (
    API_VERSIONS,
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_ACLS,
    FETCH,
    Error,
    fetch_body,
    wait_topic,
)

from .wire import PASSWORD, Client

TOPIC_KIND, LITERAL, READ, DESCRIBE, ALLOW, DENY = 2, 3, 3, 8, 3, 2
ENVELOPE = 58


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(users={"admin": PASSWORD, "alice": PASSWORD}, settings=settings) as running:
        yield running


def _logged_in(broker: Broker, user: str) -> Client:
    client = Client(broker.bootstrap)
    assert client.log_in("SCRAM-SHA-256", user).error_code == Error.none
    return client


@pytest.fixture
def admin(broker: Broker) -> Iterator[Client]:
    with _logged_in(broker, "admin") as client:
        yield client


@pytest.fixture
def alice(broker: Broker) -> Iterator[Client]:
    with _logged_in(broker, "alice") as client:
        yield client


def _acl(permission: int, suffix: str = "") -> dict[str, Any]:
    return {
        "resource_type": TOPIC_KIND,
        f"resource_name{suffix}": "orders",
        "resource_pattern_type": LITERAL,
        "pattern_type": LITERAL,
        f"principal{suffix}": "User:alice",
        f"host{suffix}": "*",
        "operation": READ,
        "permission_type": permission,
        "resource_type_filter": TOPIC_KIND,
        "pattern_type_filter": LITERAL,
    }


def _create(admin: Client, permission: int) -> None:
    answer = admin.call(CREATE_ACLS, 3, creations=[_acl(permission)])
    assert answer.results[0].error_code == Error.none, answer


def _delete(admin: Client, permission: int) -> None:
    answer = admin.call(DELETE_ACLS, 3, filters=[_acl(permission, "_filter")])
    assert len(answer.filter_results[0].matching_acls) == 1, answer


def _error_of_fetch(client: Client) -> Error:
    answer = client.call(FETCH, 12, fetch_body("orders"))
    code: Error = answer.responses[0].partitions[0].error_code
    return code


def test_permissions_change_on_open_connections_at_once(admin: Client, alice: Client) -> None:
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
    assert admin.call(CREATE_TOPICS, 7, topics=[topic], timeout=30_000).topics[0].error_code == Error.none
    wait_topic(admin, "orders", 1)
    assert _error_of_fetch(alice) == Error.topic_authorization_failed
    for _ in range(3):
        _create(admin, ALLOW)
        assert _error_of_fetch(alice) == Error.none
        _create(admin, DENY)
        assert _error_of_fetch(alice) == Error.topic_authorization_failed
        _delete(admin, DENY)
        assert _error_of_fetch(alice) == Error.none
        _delete(admin, ALLOW)
        assert _error_of_fetch(alice) == Error.topic_authorization_failed


def test_a_user_cannot_pose_as_a_broker(alice: Client) -> None:
    assert (
        alice.call(API_VERSIONS, 3, client_software_name=BROKER_SOFTWARE, client_software_version="1").error_code
        == Error.none
    )
    answer = alice.call(ENVELOPE, 0, request_data=b"{}", request_principal=None, client_host_address=b"\x7f\0\0\1")
    assert answer.error_code == Error.cluster_authorization_failed
    call = encode_call(AskQueueState("orders", uuid4(), StatePosition()))
    answer = alice.call(ENVELOPE, 0, request_data=call, request_principal=None, client_host_address=b"\x7f\0\0\1")
    with pytest.raises(TopicNotAuthorized, match="READ on the topic orders"):
        read_answer(answer.response_data, StateChangesPage)
    replica = alice.call(FETCH, 12, fetch_body("orders", replica_id=1))
    assert replica.error_code == Error.cluster_authorization_failed or all(
        partition.error_code in (Error.topic_authorization_failed, Error.cluster_authorization_failed)
        for topic in replica.responses
        for partition in topic.partitions
    )
