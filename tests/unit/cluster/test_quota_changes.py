"""Client quotas in the metadata store."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.cluster.layout_quotas import apply_quotas, encode_quotas, quota_key
from headrace.cluster.metadata import Metadata
from headrace.cluster.quota_changes import QuotaChanges
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Change, Revision
from headrace.config.broker import broker_settings
from headrace.model.errors import InvalidQuota, StartupError, UnsupportedFeature
from headrace.model.image import Endpoint
from headrace.model.quotas import ClusterQuotas, QuotaEntity
from headrace.runtime.clock import SystemClock

ALICE: QuotaEntity = (("user", "alice/ü"), ("client-id", None))


def run(tmp_path: Path, use: Callable[[QuotaChanges, Metadata], Awaitable[None]]) -> ClusterQuotas:
    """The quotas after `use`, as another start of the broker reads them from the store."""

    async def both() -> ClusterQuotas:
        for step in (use, None):
            store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
            metadata = Metadata(store, broker_settings({}), Endpoint("h", 1))
            await metadata.open()
            if step is not None:
                await step(QuotaChanges(metadata), metadata)
            quotas = metadata.image.quotas
            await metadata.close()
            await store.close()
        return quotas

    return asyncio.run(both())


def test_quotas_are_stored_changed_and_removed(tmp_path: Path) -> None:
    async def fill(changes: QuotaChanges, metadata: Metadata) -> None:
        await changes.alter(ALICE, [("producer_byte_rate", 5.0)], validate_only=True)
        assert metadata.image.quotas == {}
        await changes.alter(ALICE, [("producer_byte_rate", 5.0), ("request_percentage", 0.5)])
        before = metadata.image
        await changes.alter(ALICE, [("producer_byte_rate", 5.0)])
        assert metadata.image is before, "a change that changes nothing writes nothing"
        with pytest.raises(InvalidQuota):
            await changes.alter(ALICE, [("producer_byte_rate", 6.0), ("nonsense", 1.0)])

    assert run(tmp_path, fill) == {ALICE: {"producer_byte_rate": 5.0, "request_percentage": 0.5}}

    async def empty(changes: QuotaChanges, metadata: Metadata) -> None:
        await changes.alter(ALICE, [("producer_byte_rate", None), ("request_percentage", None)])

    assert run(tmp_path, empty) == {}


def test_a_cluster_with_older_brokers_stores_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(changes: QuotaChanges, metadata: Metadata) -> None:
        old = replace(metadata.image, feature_level=1)
        monkeypatch.setattr(Metadata, "image", property(lambda _: old))
        with pytest.raises(UnsupportedFeature, match="a client quota needs feature level 2"):
            await changes.alter(ALICE, [("producer_byte_rate", 5.0)])
        monkeypatch.undo()

    assert run(tmp_path, refused) == {}


def test_the_image_has_the_same_object_without_changes() -> None:
    quotas: ClusterQuotas = {ALICE: {"producer_byte_rate": 5.0}}
    assert apply_quotas(quotas, []) is quotas
    change = Change(quota_key(ALICE), encode_quotas(ALICE, {"producer_byte_rate": 6.0}), Revision(7))
    assert apply_quotas(quotas, [change]) == {ALICE: {"producer_byte_rate": 6.0}}
    with pytest.raises(StartupError, match="edited by hand"):
        apply_quotas(quotas, [Change(quota_key(ALICE), b"{", Revision(7))])
