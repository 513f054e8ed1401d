"""The permissions that the pages name are enough for calls and schedules, and needed."""

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headrace import Client, ClientError, QueueMessage
from headrace.testing import Broker
from tests.waiting import until

pytestmark = pytest.mark.slow

USERS = {"admin": "admin's", "team.caller": "caller's", "worker": "worker's"}
NEEDED = [
    ("team.caller", "sums", "WRITE"),
    ("team.caller", "replies.team_2ecaller.", "CREATE DESCRIBE READ DELETE"),
    ("worker", "sums", "READ"),
    ("worker", "replies.", "WRITE"),
    ("worker", "schedules.", "CREATE DESCRIBE READ ALTER_CONFIGS"),
    ("worker", "schedules-dead.", "CREATE DESCRIBE WRITE"),
]


def allow(bootstrap: str) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
    admin = AdminClient(
        {"bootstrap.servers": bootstrap, "sasl.username": "admin", "sasl.password": USERS["admin"], **login}
    )
    wanted = [
        AclBinding(
            ResourceType.TOPIC,
            prefix,
            ResourcePatternType.PREFIXED,
            f"User:{user}",
            "*",
            AclOperation[name],
            AclPermissionType.ALLOW,
        )
        for user, prefix, names in NEEDED
        for name in names.split()
    ]
    for done in admin.create_acls(wanted).values():
        done.result(30)


def test_calls_and_schedules_with_what_the_pages_say() -> None:
    settings = {"authorization.enable": True, "super.users": "User:admin"}
    with Broker(users=USERS, settings=settings) as broker:
        allow(broker.bootstrap)
        admin, caller, worker = (Client(broker.bootstrap, user=name, password=word) for name, word in USERS.items())
        with admin, caller, worker:
            admin.queue("sums").create()
            runs: list[int] = []

            @worker.queue("sums").worker()
            def add(message: QueueMessage) -> int:
                return sum(message.json())

            @worker.every(0.2, name="tick")
            def tick() -> None:
                runs.append(1)

            with worker.running():
                assert caller.queue("sums").call([1, 2]).result(timeout=60) == 3
                until(lambda: runs)
                assert [each.name for each in worker.schedules.list()] == ["tick"]
                with pytest.raises(ClientError, match="may not"):
                    caller.schedules.run("tick")
                with pytest.raises(ClientError):
                    worker.schedules.run("tick")
