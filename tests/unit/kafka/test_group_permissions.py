"""Access control of groups, offsets, transactions and share groups: denied without a permission, allowed with all."""

from collections.abc import Iterator

import pytest

from headrace.kafka.dispatch import APIS
from headrace.kafka.permissions import Need

from .guarded_broker import ALICE, GuardedBroker
from .permission_requests_groups import DENIALS, REQUESTS, GuardedNames, GuardedRequest, codes


def _cases() -> Iterator[object]:
    for request in REQUESTS:
        for version in request.versions():
            names = "+".join(str(need).replace(" ", "_") for need in request.needs)
            yield pytest.param(request, version, id=f"{request.key}-v{version}-{names}")


@pytest.mark.parametrize(("request_", "version"), [*_cases()])
def test_each_permission_is_needed_and_all_are_enough(
    guarded: GuardedBroker, place: GuardedNames, request_: GuardedRequest, version: int
) -> None:
    for missing in request_.needs:
        for need in request_.needs:
            if need is not missing:
                guarded.allow(ALICE, need, place.named(need))
        request_.prepare(guarded, place)
        answer = guarded.call(ALICE, request_.key, version, **request_.fields(place, version))
        assert DENIALS[missing.kind] in codes(answer), missing
        guarded.revoke_all()
        place = GuardedNames(f"{place.name}-", place.topic_id)
    for need in request_.needs:
        guarded.allow(ALICE, need, place.named(need))
    request_.prepare(guarded, place)
    answer = guarded.call(ALICE, request_.key, version, **request_.fields(place, version))
    assert not codes(answer) & set(DENIALS.values())


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each.key}-{each.needs[-1].kind.name}")
def test_the_handler_declares_what_it_needs(request_: GuardedRequest) -> None:
    declared: tuple[Need, ...] = APIS[request_.key].needs
    assert set(request_.needs) <= set(declared)
