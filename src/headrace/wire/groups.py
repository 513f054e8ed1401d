"""Groups by their type, which librdkafka's admin client leaves out unless they are consumers."""

from types import ModuleType
from typing import Any

from headrace.protocol.codec import make
from headrace.wire.errors import Unsupported, check
from headrace.wire.routing import Router

_LIST_GROUPS = 16
_LIST_VERSION = 5
"""The first that knows of types."""


def list_groups(router: Router, kind: str | None) -> dict[str, str]:
    """The groups of one type, or of all, of all brokers; each with its state."""

    def build(schema: ModuleType) -> Any:
        return make(schema.ListGroupsRequest, states_filter=(), types_filter=() if kind is None else (kind,))

    def attempt() -> dict[str, str]:
        found: dict[str, str] = {}
        for address in router.brokers().values():
            with router.using(address) as connection:
                answer = connection.call(_LIST_GROUPS, _LIST_VERSION, build, lowest=_LIST_VERSION)
                check("listing the groups" if kind is None else f"listing the {kind} groups", answer.error_code)
                found |= {each.group_id: each.group_state for each in answer.groups}
        return dict(sorted(found.items()))

    try:
        return router.patiently(attempt)
    except Unsupported:
        return {}
