"""Access control of groups, offsets, transactions and share groups: denied without a permission, allowed with all."""

from collections.abc import Iterator

import pytest

from headrace.kafka.dispatch import APIS

from .guarded_broker import ALICE, GuardedBroker
from .permission_requests_groups import (
    APIS_OF_GROUPS,
    DENIALS,
    REQUESTS,
    TESTED_ALONE,
    GuardedNames,
    GuardedRequest,
    codes,
)


def _cases() -> Iterator[object]:
    for request in REQUESTS:
        for version in request.versions():
            names = "+".join(str(need).replace(" ", "_") for need in request.needs)
            yield pytest.param(request, version, id=f"{request.key}-v{version}-{names}")


@pytest.mark.parametrize(("request_", "version"), [*_cases()])
def test_each_permission_is_needed_and_all_are_enough(
    guarded: GuardedBroker, names: GuardedNames, request_: GuardedRequest, version: int
) -> None:
    for missing in request_.needs:
        for need in request_.needs:
            if need is not missing:
                guarded.allow(ALICE, need, names.named(need))
        request_.prepare(guarded, names)
        guarded.denials.clear()
        answer = guarded.call(ALICE, request_.key, version, **request_.fields(names, version))
        assert DENIALS[missing.kind] in codes(answer), missing
        assert (missing.operation, missing.kind) in {
            (denial.operation, denial.resource.resource_type) for denial in guarded.denials
        }, "it is reported to the audit log"
        guarded.revoke_all()
        names = GuardedNames(f"{names.name}-", names.topic_id)
    for need in request_.needs:
        guarded.allow(ALICE, need, names.named(need))
    request_.prepare(guarded, names)
    guarded.denials.clear()
    answer = guarded.call(ALICE, request_.key, version, **request_.fields(names, version))
    assert not codes(answer) & set(DENIALS.values())
    assert not guarded.denials


@pytest.mark.parametrize("key", sorted(APIS_OF_GROUPS))
def test_all_permissions_that_a_handler_declares_are_tested(key: int) -> None:
    tested = {need for request in REQUESTS if request.key == key for need in request.needs}
    assert tested.union(TESTED_ALONE.get(key, ())) == set(APIS[key].needs)
