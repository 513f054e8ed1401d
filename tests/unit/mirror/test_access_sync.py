"""Rounds in which a link copies what it brings besides topics."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from headrace.cluster.access import AccessControl
from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.mirror import access_sync
from headrace.mirror.access_sync import AccessSync
from headrace.mirror.link_audit import LinkAudit
from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.image import Endpoint
from headrace.model.links import Link, LinkSync
from headrace.runtime.clock import SystemClock
from headrace.security.audit.log import AuditLog

EU = Link("eu", uuid4(), ("a:9092",), sync=LinkSync(acls=True))


class Source:
    """A source with ACLs about topics of these names, or one that answers with an error."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.error = ErrorCode.none

    async def ask(self, request: Any, max_answer_bytes: int) -> Any:
        assert max_answer_bytes < 10_000_000
        rule = SimpleNamespace(principal="User:alice", host="*", operation=3, permission_type=3)
        resources = [
            SimpleNamespace(resource_type=2, pattern_type=3, resource_name=name, acls=[rule]) for name in self.names
        ]
        return SimpleNamespace(error_code=self.error, error_message="no", resources=resources)


def run(tmp_path: Path, use: Callable[[AccessSync, Metadata], Awaitable[None]]) -> None:
    async def work() -> None:
        store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
        metadata = Metadata(store, broker_settings({}), Endpoint("h", 1))
        await metadata.open()
        await LinkChanges(metadata).create(EU)
        await use(AccessSync(metadata, LinkAudit(AuditLog(lambda: 0))), metadata)
        await metadata.close()
        await store.close()

    asyncio.run(work())


def names(metadata: Metadata) -> set[str]:
    return {acl.resource_name for acl in metadata.image.security.acls}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ErrorCode.cluster_authorization_failed, "allow its user DESCRIBE on the cluster"),
        (ErrorCode.security_disabled, "authorization is off there"),
        (ErrorCode.unsupported_version, "unsupported_version no"),
    ],
)
def test_an_error_of_the_source_removes_nothing(tmp_path: Path, error: ErrorCode, words: str) -> None:
    async def use(sync: AccessSync, metadata: Metadata) -> None:
        source = Source("a", "b")
        await sync.run(EU, cast(Any, source))
        assert (names(metadata), sync.problems) == ({"a", "b"}, {})
        source.error, source.names = error, ()
        await sync.run(EU, cast(Any, source))
        assert names(metadata) == {"a", "b"}
        assert words in sync.problems["acls"]
        source.error = ErrorCode.none
        await sync.run(EU, cast(Any, source))
        assert (names(metadata), sync.problems) == (set(), {}), "now the source has none"

    run(tmp_path, use)


def test_a_round_is_bounded_and_the_rest_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(sync: AccessSync, metadata: Metadata) -> None:
        source = Source(*(f"t{number}" for number in range(100)))
        for expected in (90, 100):
            await sync.run(EU, cast(Any, source))
            assert len(names(metadata)) == expected

    monkeypatch.setattr(access_sync, "_CHANGES_MAX", 90)
    run(tmp_path, use)


def test_nothing_is_stored_for_a_link_that_was_changed_meanwhile(tmp_path: Path) -> None:
    async def use(sync: AccessSync, metadata: Metadata) -> None:
        await LinkChanges(metadata).alter("eu", lambda link: replace(link, sync=LinkSync()))
        await sync.run(EU, cast(Any, Source("a")))
        assert "changed meanwhile" in sync.problems["acls"]
        assert not names(metadata)

    run(tmp_path, use)


def test_links_bring_a_bounded_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(sync: AccessSync, metadata: Metadata) -> None:
        await sync.run(EU, cast(Any, Source(*(f"t{number}" for number in range(60)))))
        assert len(names(metadata)) == 40, "a transaction is made or not"
        assert "the most" in sync.problems["acls"]

    monkeypatch.setattr("headrace.mirror.copies.MAX_COPIED", 50)
    run(tmp_path, use)


def test_a_rule_that_others_made_is_not_noted(tmp_path: Path) -> None:
    async def use(sync: AccessSync, metadata: Metadata) -> None:
        local = Acl(
            ResourceType.TOPIC, PatternType.LITERAL, "a", "User:alice", "*", AclOperation.READ, Permission.ALLOW
        )
        await AccessControl(metadata).create_acls([local])
        await sync.run(EU, cast(Any, Source("a")))
        await sync.run(EU, cast(Any, Source()))
        assert names(metadata) == {"a"}

    run(tmp_path, use)
