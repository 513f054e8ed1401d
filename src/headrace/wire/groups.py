"""Groups of all types: librdkafka's admin client lists consumer groups only."""

from types import ModuleType
from typing import Any, NamedTuple

from headrace.protocol.codec import make
from headrace.wire.errors import Unsupported, check
from headrace.wire.router import LeaderRouter

_LIST_GROUPS = 16
_LIST_VERSION = 5
"""The first version with group types."""


class GroupInfo(NamedTuple):
    name: str
    state: str
    kind: str
    """classic, consumer, share or streams."""


def all_groups(router: LeaderRouter) -> list[GroupInfo]:
    """The groups of all types on all brokers, by name. `Unsupported` if brokers have no group types."""
    return _listed(router, ())


def list_groups(router: LeaderRouter, kind: str) -> dict[str, str]:
    """The groups of one type on all brokers, each with its state."""
    try:
        return {each.name: each.state for each in _listed(router, (kind,))}
    except Unsupported:
        return {}


def _listed(router: LeaderRouter, kinds: tuple[str, ...]) -> list[GroupInfo]:
    def build(schema: ModuleType) -> Any:
        return make(schema.ListGroupsRequest, states_filter=(), types_filter=kinds)

    def attempt() -> list[GroupInfo]:
        found: dict[str, GroupInfo] = {}
        for address in router.brokers().values():
            with router.using(address) as connection:
                answer = connection.call(_LIST_GROUPS, _LIST_VERSION, build, lowest=_LIST_VERSION)
                check(" ".join(("listing the", *kinds, "groups")), answer.error_code)
            for each in answer.groups:
                found[each.group_id] = GroupInfo(
                    str(each.group_id), str(each.group_state), str(each.group_type).lower()
                )
        return sorted(found.values())

    return router.patiently(attempt)
