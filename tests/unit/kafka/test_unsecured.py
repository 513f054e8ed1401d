"""APIs about access control and directories on a broker that has none, or one: tools can tell why."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.entities import build

from .harness import Harness, broker

ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


def ask(harness: Harness, key: int, version: int, request: str, **fields: Any) -> Any:
    return harness.call(key, version, lambda schema: build(getattr(schema, f"{request}Request"), fields))


@pytest.mark.parametrize("version", range(1, 4))
def test_access_control_is_disabled(harness: Harness, version: int) -> None:
    described = ask(harness, 29, version, "DescribeAcls", **ANY)
    assert (described.error_code, described.resources) == (ErrorCode.security_disabled, ())
    created = ask(harness, 30, version, "CreateAcls", creations=[{}, {}])
    assert [one.error_code for one in created.results] == [ErrorCode.security_disabled] * 2
    deleted = ask(harness, 31, version, "DeleteAcls", filters=[ANY])
    assert [one.error_code for one in deleted.filter_results] == [ErrorCode.security_disabled]
    for message in (described.error_message, created.results[0].error_message, deleted.filter_results[0].error_message):
        assert "authorization is off" in message


def test_tokens_are_for_clients_that_have_authenticated(harness: Harness) -> None:
    refused = ErrorCode.delegation_token_request_not_allowed
    for version in range(1, 4):
        made = ask(harness, 38, version, "CreateDelegationToken", renewers=[], max_lifetime=timedelta(milliseconds=-1))
        assert made.error_code is refused
        assert ask(harness, 41, version, "DescribeDelegationToken", owners=None).error_code is refused
    for version in range(1, 3):
        assert ask(harness, 39, version, "RenewDelegationToken", hmac=b"x").error_code is refused
        assert ask(harness, 40, version, "ExpireDelegationToken", hmac=b"x").error_code is refused


def test_nobody_can_authenticate(harness: Harness) -> None:
    for version in range(2):
        shaken = ask(harness, 17, version, "SaslHandshake", mechanism="PLAIN")
        assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.illegal_sasl_state, ())
    for version in range(3):
        answer = ask(harness, 36, version, "SaslAuthenticate", auth_bytes=b"")
        assert answer.error_code is ErrorCode.illegal_sasl_state
        assert "does not authenticate" in answer.error_message


@pytest.mark.parametrize("version", range(1, 3))
def test_replicas_are_in_the_one_directory(tmp_path: Path, version: int) -> None:
    with broker(tmp_path) as harness:
        harness.create("a", 2)

        def moved(path: str) -> dict[tuple[str, int], ErrorCode]:
            topics = [{"name": "a", "partitions": [0, 1, 2]}, {"name": "none", "partitions": [0]}]
            answer = ask(harness, 34, version, "AlterReplicaLogDirs", dirs=[{"path": path, "topics": topics}])
            return {
                (topic.topic_name, one.partition_index): one.error_code
                for topic in answer.results
                for one in topic.partitions
            }

        places = [("a", 0), ("a", 1), ("a", 2), ("none", 0)]
        unknown = ErrorCode.unknown_topic_or_partition
        assert moved(str(tmp_path)) == dict(
            zip(places, [ErrorCode.none, ErrorCode.none, unknown, unknown], strict=True)
        )
        assert moved("/elsewhere") == dict.fromkeys(places, ErrorCode.log_dir_not_found)


def test_a_broker_is_drained_instead_of_unregistered(harness: Harness) -> None:
    assert ask(harness, 64, 0, "UnregisterBroker", broker_id=7).error_code is ErrorCode.broker_id_not_registered
    own = ask(harness, 64, 0, "UnregisterBroker", broker_id=0)
    assert own.error_code is ErrorCode.invalid_request
    assert "broker.draining=true" in own.error_message
