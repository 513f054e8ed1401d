"""Features as ApiVersions tells of them and UpdateFeatures changes them."""

from typing import Any

import pytest

from headrace.model.features import FEATURE, LATEST_LEVEL

from . import subject, wire
from .subject import Subject
from .wire import Error

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about the feature levels of Headrace")


def features(broker: Subject, version: int) -> tuple[dict[str, tuple[int, int]], dict[str, int]]:
    with wire.Connection(broker.bootstrap) as connection:
        answer = connection.call(wire.API_VERSIONS, version, client_software_name="wire", client_software_version="1")
    assert answer.finalized_features_epoch >= 0
    return (
        {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
        {one.name: one.max_version_level for one in answer.finalized_features},
    )


def test_features_that_may_be_off_are_told_of_from_version_four_on(broker: Subject) -> None:
    """Java clients 3.3 to 3.7 ask with version 3, and refuse a broker that names a feature with the minimum 0."""
    supported, finalized = features(broker, 4)
    assert supported == {FEATURE: (1, LATEST_LEVEL), "share.version": (0, 1), "transaction.version": (0, 2)}
    assert finalized == {FEATURE: LATEST_LEVEL, "share.version": 1, "transaction.version": 2}
    supported, finalized = features(broker, 3)
    assert supported == {FEATURE: (1, LATEST_LEVEL)}
    assert finalized["transaction.version"] == 2


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(
    ("updates", "error", "says"),
    [
        ({FEATURE: LATEST_LEVEL}, Error.none, None),
        ({FEATURE: LATEST_LEVEL, "transaction.version": 2}, Error.none, None),
        ({FEATURE: LATEST_LEVEL + 1}, Error.invalid_update_version, "upgrade it to a newer Headrace"),
        ({FEATURE: 1}, Error.feature_update_failed, "cannot be lowered"),
        ({FEATURE: 0}, Error.invalid_update_version, "cannot be removed"),
        ({"transaction.version": 1}, Error.feature_update_failed, "follows from it"),
        ({"kraft.version": 1}, Error.invalid_update_version, "does not know the feature kraft.version"),
    ],
)
def test_an_update_is_made_or_refused_in_words(
    broker: Subject, version: int, updates: dict[str, int], error: Error, says: str | None
) -> None:
    body: dict[str, Any] = {
        "timeout": 10_000,
        "feature_updates": [
            {"feature": name, "max_version_level": level, "allow_downgrade": True, "upgrade_type": 3}
            for name, level in updates.items()
        ],
    }
    with wire.Connection(broker.bootstrap) as connection:
        answer = connection.call(wire.UPDATE_FEATURES, version, body)
    told = [answer] if version == 2 else answer.results
    assert {each.error_code for each in told} == {error}
    assert all(each.error_message is None if says is None else says in each.error_message for each in told)
    assert features(broker, 4)[1][FEATURE] == LATEST_LEVEL
