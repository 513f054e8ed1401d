"""Which permission a request to the registry needs."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.admin.subjects import ALTER_SUBJECT
from headrace.model.acls import ResourceType
from headrace.registry.door import RegistryDoor
from headrace.schemas.operations.all_operations import find_operation
from headrace.schemas.requests import RegistryRequest
from headrace.security.subject import Subject

CLUSTER = (ResourceType.CLUSTER, "kafka-cluster")


def _asked(request: RegistryRequest) -> list[tuple[ResourceType, str]]:
    """What the permission is asked for."""
    asked: list[tuple[ResourceType, str]] = []

    def allows(_: str, __: str, ___: object, kind: ResourceType, name: str) -> bool:
        asked.append((kind, name))
        return True

    security = SimpleNamespace(authorizer=SimpleNamespace(allows=allows), permitted=Counter(), audit=None)
    door = RegistryDoor(cast(Any, None), cast(Any, security), cast(Any, None), is_insecure=lambda: False)
    door._check(find_operation(request), request, Subject(principal="User:bob"))
    return asked


@pytest.mark.parametrize(
    ("subject", "resource"),
    [
        ("orders-value", (ResourceType.TOPIC, "orders")),
        (":.shop:orders-value", (ResourceType.TOPIC, "orders")),
        (":.shop:", CLUSTER),
        (":.shop", CLUSTER),
        (":.:", CLUSTER),
    ],
)
def test_settings_of_a_context_need_the_permission_on_the_cluster(
    subject: str, resource: tuple[ResourceType, str]
) -> None:
    assert _asked(RegistryRequest("PUT", ("config", subject))) == [resource]
    found = ALTER_SUBJECT.resource({"subject": subject})
    assert (found.resource_type, found.name) == resource


@pytest.mark.parametrize(
    ("mode", "resource"),
    [("READONLY", (ResourceType.TOPIC, "orders")), ("IMPORT", CLUSTER), ("import", CLUSTER), ("FORWARD", CLUSTER)],
)
def test_imports_choose_ids_and_need_the_permission_on_the_cluster(
    mode: str, resource: tuple[ResourceType, str]
) -> None:
    body = f'{{"mode":"{mode}"}}'.encode()
    assert _asked(RegistryRequest("PUT", ("mode", "orders-value"), body=body)) == [resource]
