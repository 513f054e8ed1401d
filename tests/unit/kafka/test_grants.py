"""Permissions that a connection remembers: they end at the next request when a rule, a setting or the login changes."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from headrace.config.broker import broker_settings
from headrace.kafka import permissions as p
from headrace.kafka.grants import TOPICS_MAX, TopicGrants
from headrace.model.acls import AclOperation, Permission
from headrace.model.image import SecurityImage

from .secured import ALICE, TOPIC, Secured, allow, secured_broker
from .test_topic_permissions import fetch_fields, produce

OK, DENIED = ErrorCode.none, ErrorCode.topic_authorization_failed
BOTH = (allow(p.WRITE_TOPIC), allow(p.READ_TOPIC))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Secured]:
    with secured_broker(tmp_path) as scene:
        yield scene


def used(scene: Secured) -> set[ErrorCode]:
    """What the same connection gets for Produce and Fetch, by name and by id, each twice."""
    codes = [part.error_code for _ in range(2) for part in produce(scene, 12, TOPIC)]
    codes += [part.error_code for _ in range(2) for part in produce(scene, 13, scene.topic_id)]
    for version in (11, 17, 11, 17):
        answer = scene.call(1, version, **fetch_fields(scene, version))
        codes += [part.error_code for topic in answer.responses for part in topic.partitions]
    assert len(codes) == 8
    return set(codes)


def test_a_revoked_permission_is_gone_at_the_next_request_and_comes_back_with_its_rule(scene: Secured) -> None:
    for _ in range(2):
        scene.permit(*BOTH)
        assert used(scene) == {OK}
        scene.permit()
        assert used(scene) == {DENIED}


def test_the_other_permission_is_not_granted_along(scene: Secured) -> None:
    scene.permit(*BOTH)
    assert used(scene) == {OK}
    scene.permit(allow(p.READ_TOPIC))
    assert [part.error_code for part in produce(scene, 12, TOPIC)] == [DENIED]
    scene.permit(allow(p.WRITE_TOPIC))
    assert scene.call(1, 11, **fetch_fields(scene, 11)).responses[0].partitions[0].error_code is DENIED
    assert [part.error_code for part in produce(scene, 12, TOPIC)] == [OK]


@pytest.mark.parametrize("host", ["*", ALICE.host, "10.0.0.0/8"])
def test_a_denial_that_comes_later_wins(scene: Secured, host: str) -> None:
    scene.permit(*BOTH)
    assert used(scene) == {OK}
    everything = allow(p.WRITE_TOPIC)
    scene.permit(*BOTH, replace(everything, operation=AclOperation.ALL, host=host, permission=Permission.DENY))
    assert used(scene) == {DENIED}


def test_a_rule_for_a_host_holds_for_connections_from_there_only(scene: Secured) -> None:
    scene.permit(*(replace(acl, host="10.1.0.0/16") for acl in BOTH))
    assert used(scene) == {OK}
    scene.harness.peer.subject = ALICE._replace(host="10.2.2.3")
    assert used(scene) == {DENIED}


def test_another_login_on_the_connection_does_not_inherit(scene: Secured) -> None:
    scene.permit(*BOTH)
    assert used(scene) == {OK}
    scene.harness.peer.subject = ALICE._replace(principal="User:mallory")
    assert used(scene) == {DENIED}
    scene.harness.peer.subject = ALICE._replace()
    assert used(scene) == {OK}


def test_a_super_user_is_one_until_the_setting_changes(scene: Secured) -> None:
    def decide(**settings: str) -> None:
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        scene.services.security.update(
            SecurityImage(), broker_settings({"authorization.enable": "true", "super.users": "User:admin"} | texts)
        )

    decide(super_users="User:admin;User:alice")
    assert used(scene) == {OK}
    decide()
    assert used(scene) == {DENIED}
    decide(allow_everyone_if_no_acl_found="true")
    assert used(scene) == {OK}
    decide()
    assert used(scene) == {DENIED}


def test_each_denial_is_reported_to_the_audit_log(scene: Secured) -> None:
    scene.permit(*BOTH)
    used(scene)
    scene.permit()
    used(scene)
    assert [denial.action for denial in scene.denials] == ["Produce"] * 4 + ["Fetch"] * 4


def test_names_that_a_client_makes_up_do_not_fill_the_memory() -> None:
    grants = TopicGrants()
    for number in range(10 * TOPICS_MAX):
        grants.add(grants.writable, f"topic-{number}")
        assert f"topic-{number}" in grants.writable
        assert len(grants.writable) <= TOPICS_MAX
