"""The quota of changes to topics, by API and version."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.model.quotas import QuotaKind
from headrace.runtime.clock import ManualClock
from tests.entities import build

from .harness import Harness

EXCEEDED = ErrorCode.throttling_quota_exceeded


@pytest.fixture
def limited(harness: Harness) -> Harness:
    """Two partitions each second, and a burst of 22."""
    harness.create("old", partitions=2)
    harness.services.quotas.update({(("user", None),): {QuotaKind.MUTATION: 2}}, 2**31 - 1, {}, 0)
    return harness


def call(harness: Harness, key: int, version: int, request: str, **fields: Any) -> Any:
    return harness.call(key, version, lambda schema: build(getattr(schema, request), {"timeout": 1000, **fields}))


def create(harness: Harness, name: str, partitions: int, version: int = 7, **fields: Any) -> ErrorCode:
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
    answer = call(harness, 19, version, "CreateTopicsRequest", topics=[topic], **fields)
    return ErrorCode(answer.topics[0].error_code)


def advance(harness: Harness, ms: int) -> None:
    clock = harness.services.clock
    assert isinstance(clock, ManualClock)
    clock.advance(ms)


def test_a_change_may_overdraw_and_the_next_one_waits(limited: Harness) -> None:
    assert create(limited, "first", 24) is ErrorCode.none
    assert create(limited, "second", 1) is EXCEEDED
    assert "second" not in limited.metadata.image.topics
    advance(limited, 999)
    assert create(limited, "second", 1) is EXCEEDED
    advance(limited, 1)
    assert create(limited, "second", 1) is ErrorCode.none


def test_only_valid_changes_count_and_validation_does_too(limited: Harness) -> None:
    for _ in range(30):
        assert create(limited, "old", 5) is ErrorCode.topic_already_exists
    assert create(limited, "first", 23, validate_only=True) is ErrorCode.none
    assert create(limited, "second", 1) is EXCEEDED


def test_versions_that_do_not_know_the_error_are_not_refused(limited: Harness) -> None:
    assert create(limited, "first", 30, version=5) is ErrorCode.none
    assert create(limited, "second", 1, version=5) is ErrorCode.none
    assert create(limited, "third", 1, version=6) is EXCEEDED


@pytest.mark.parametrize(("version", "error"), [(2, ErrorCode.none), (3, EXCEEDED)])
def test_new_partitions(limited: Harness, version: int, error: ErrorCode) -> None:
    def grow(count: int) -> Any:
        topic = {"name": "old", "count": count, "assignments": None}
        return call(limited, 37, version, "CreatePartitionsRequest", topics=[topic]).results[0].error_code

    assert grow(25) is ErrorCode.none
    assert grow(25) is ErrorCode.invalid_partitions
    assert grow(26) is error


@pytest.mark.parametrize(("version", "error"), [(4, ErrorCode.none), (5, EXCEEDED)])
def test_deleted_partitions(limited: Harness, version: int, error: ErrorCode) -> None:
    def delete(name: str) -> Any:
        answer = call(limited, 20, version, "DeleteTopicsRequest", topic_names=[name])
        return answer.responses[0].error_code

    assert create(limited, "large", 21) is ErrorCode.none
    assert delete("large") is ErrorCode.none
    assert delete("nowhere") is ErrorCode.unknown_topic_or_partition
    assert delete("old") is error
