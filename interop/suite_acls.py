"""ACLs for aiokafka's tests, which know them by the options of Kafka's tool."""

from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from secured_broker import SecuredAddresses

_KINDS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.BROKER,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
_CLUSTER = "kafka-cluster"


class AclManager:
    """As much of the suite's own as its tests use."""

    def __init__(self, addresses: SecuredAddresses) -> None:
        self._admin = addresses.admin()
        self._added: list[AclBinding] = []

    def list_acl(self, principal: str | None = None) -> None:
        """The suite's own shows that the tool works."""

    def add_acl(self, **options: Any) -> None:
        acl = _acl(**options)
        self._admin.create_acls([acl])[acl].result(30)
        self._added.append(acl)

    def cleanup(self) -> None:
        for acl in self._added:
            for deleted in self._admin.delete_acls([_filter(acl)]).values():
                deleted.result(30)
        self._added.clear()


class KafkaConfig:
    def __init__(self, addresses: SecuredAddresses) -> None:
        self._addresses = addresses

    def add_scram_user(self, username: str, password: str) -> None:
        self._addresses.create_user(username, password)


def _acl(
    *, operation: str, allow_principal: str | None = None, deny_principal: str | None = None, **resource: Any
) -> AclBinding:
    ((kind, name),) = resource.items()
    permission = AclPermissionType.ALLOW if allow_principal is not None else AclPermissionType.DENY
    return AclBinding(
        _KINDS[kind],
        _CLUSTER if kind == "cluster" else name,
        ResourcePatternType.LITERAL,
        f"User:{allow_principal or deny_principal}",
        "*",
        AclOperation[operation.upper()],
        permission,
    )


def _filter(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )
