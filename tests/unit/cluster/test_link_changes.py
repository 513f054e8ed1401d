"""Links and mirror topics in the metadata store."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from headrace.cluster.layout_links import apply_links, apply_mirrors, encode_link, encode_mirror, link_key, mirror_key
from headrace.cluster.link_changes import LinkChanges, check_link
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Change, Revision
from headrace.config.broker import broker_settings
from headrace.model.errors import (
    InvalidLink,
    LinkExists,
    NotMirrored,
    PolicyViolation,
    StartupError,
    UnknownLink,
    UnsupportedFeature,
)
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, Endpoint
from headrace.model.links import EPOCH_ROOM, Link, LinkSync, Mirror, MirrorState, Parting
from headrace.runtime.clock import SystemClock

EU = Link("eu", uuid4(), ("a:9092", "[::1]:9092"), ("orders.*",), sync=LinkSync(groups=False), created_ms=5)
COPY = Mirror(UUID(int=0), "eu", "orders", uuid4(), "other", source_epoch=7)


def run(tmp_path: Path, use: Callable[[LinkChanges, Metadata], Awaitable[None]]) -> ClusterImage:
    """The image after `use`, as another start of the broker reads it from the store."""

    async def both() -> ClusterImage:
        for step in (use, None):
            store = await SqliteStore.open(tmp_path / "metadata.sqlite", SystemClock())
            metadata = Metadata(store, broker_settings({}), Endpoint("h", 1))
            await metadata.open()
            if step is not None:
                await step(LinkChanges(metadata), metadata)
            image = metadata.image
            await metadata.close()
            await store.close()
        return image

    return asyncio.run(both())


def test_links_are_stored_changed_and_deleted(tmp_path: Path) -> None:
    async def use(changes: LinkChanges, metadata: Metadata) -> None:
        await changes.create(EU)
        await changes.create(replace(EU, name="us"))
        with pytest.raises(LinkExists):
            await changes.create(EU)
        assert (await changes.alter("eu", lambda link: replace(link, is_paused=True))).is_paused
        before = metadata.image
        await changes.alter("eu", lambda link: link)
        assert metadata.image is before, "a change that changes nothing writes nothing"
        await changes.delete("us")
        for change in (changes.delete("us"), changes.alter("us", lambda link: link)):
            with pytest.raises(UnknownLink):
                await change

    assert run(tmp_path, use).links == {"eu": replace(EU, is_paused=True)}


def test_a_mirror_topic_and_its_record_come_and_go_in_one_transaction(tmp_path: Path) -> None:
    async def use(changes: LinkChanges, metadata: Metadata) -> None:
        seen: list[tuple[bool, int]] = []
        metadata.subscribe(lambda _, new: seen.append((TopicName("eu.orders") in new.topics, len(new.mirrors))))
        with pytest.raises(UnknownLink):
            await changes.create_mirror("eu.orders", COPY, 3, {})
        await changes.create(EU)
        topic = await changes.create_mirror("eu.orders", COPY, 3, {"retention.ms": "1000"})
        assert metadata.image.mirrors == {topic.topic_id: replace(COPY, topic_id=topic.topic_id)}
        with pytest.raises(InvalidLink, match=r"eu\.orders"):
            await changes.delete("eu")
        await metadata.delete_topic("eu.orders")
        assert seen == [(False, 0), (True, 1), (False, 0)]
        with pytest.raises(NotMirrored):
            await changes.promote(topic.topic_id, 0, 0)
        await changes.delete("eu")

    image = run(tmp_path, use)
    assert not image.mirrors
    assert not image.links


def test_the_mirror_of_a_queue_is_one_before_it_is_writable(tmp_path: Path) -> None:
    async def use(changes: LinkChanges, metadata: Metadata) -> None:
        await changes.create(EU)
        queue = {"queue.type": "standard", "queue.max.receives": "3"}
        jobs = await changes.create_mirror("jobs", replace(COPY, queue=queue), 1, {"retention.ms": "-1"})
        wide = await changes.create_mirror("wide", replace(COPY, queue=queue), 2, {})

        def when_stopped(_: ClusterImage, new: ClusterImage) -> None:
            if not new.mirrors[jobs.topic_id].is_read_only:
                assert new.topics[TopicName("jobs")].settings == {"retention.ms": "-1", **queue}

        metadata.subscribe(when_stopped)
        assert "queue.type" not in metadata.image.topics[TopicName("jobs")].settings
        for topic in (jobs, wide):
            assert (await changes.promote(topic.topic_id, 1, 9)).state is MirrorState.STOPPED

    image = run(tmp_path, use)
    assert image.topics[TopicName("jobs")].settings["queue.type"] == "standard"
    assert not image.topics[TopicName("wide")].settings, "it is no queue, but a failover never fails for that"


def test_a_promotion_ends_above_every_epoch_and_can_be_repeated(tmp_path: Path) -> None:
    many = 120  # More than one transaction changes.

    async def use(changes: LinkChanges, metadata: Metadata) -> None:
        await changes.create(EU)
        topic = await changes.create_mirror("orders", COPY, many, {})

        def epochs() -> set[int]:
            found = metadata.image.topic_by_id(topic.topic_id)
            assert found is not None
            return {state.leader_epoch for state in found.partitions}

        def when_stopped(_: ClusterImage, new: ClusterImage) -> None:
            record = new.mirrors[topic.topic_id]
            if not record.is_read_only:
                assert epochs() == {record.promoted_epoch}, "writable before the epochs are raised"

        metadata.subscribe(when_stopped)
        begun = replace(COPY, topic_id=topic.topic_id, state=MirrorState.PROMOTING, promoted_epoch=12 + EPOCH_ROOM)
        await changes.change_mirror(topic.topic_id, lambda _: begun)  # A broker that was killed after this step.
        promoted = await changes.promote(topic.topic_id, 40, 9)
        assert (promoted.state, promoted.promoted_epoch) == (MirrorState.STOPPED, 12 + EPOCH_ROOM)
        with pytest.raises(NotMirrored, match="any more"):
            await changes.promote(topic.topic_id, 40, 9)
        other = await changes.create_mirror("other", COPY, 1, {})
        assert (await changes.promote(other.topic_id, 40, 9)).promoted_epoch == 40 + EPOCH_ROOM
        grown = await metadata.add_partitions("other", 3)
        assert [state.leader_epoch for state in grown.partitions] == [40 + EPOCH_ROOM] * 3
        await changes.delete("eu")

    image = run(tmp_path, use)
    assert {mirror.state for mirror in image.mirrors.values()} == {MirrorState.STOPPED}
    states = image.topics[TopicName("orders")].partitions
    assert [state.leader_epoch for state in states] == [12 + EPOCH_ROOM] * many


def test_a_cluster_with_older_brokers_stores_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(changes: LinkChanges, metadata: Metadata) -> None:
        old = replace(metadata.image, feature_level=1)
        monkeypatch.setattr(Metadata, "image", property(lambda _: old))
        with pytest.raises(UnsupportedFeature, match="a link needs feature level 2"):
            await changes.create(EU)
        monkeypatch.undo()

    assert run(tmp_path, refused).links == {}


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (replace(EU, name=""), "needs a name"),
        (replace(EU, name="a b"), "letters"),
        (replace(EU, prefix="ü"), "prefix"),
        (replace(EU, bootstrap=()), "addresses"),
        (replace(EU, bootstrap=("host",)), "host:port"),
        (replace(EU, bootstrap=("host:0",)), "between 1 and 65535"),
        (replace(EU, bootstrap=("host:9092", "[::1]:65536")), "between 1 and 65535"),
        (replace(EU, prefix="__consumer_"), "internal"),
        (replace(EU, topics=("x",) * 257), "patterns"),
        (replace(EU, user="u" * 1025), "characters"),
        (replace(EU, max_bytes_per_second=0), "pause"),
        (replace(EU, user="u", mechanism="GSSAPI", password_env="P"), "SCRAM-SHA-256"),
        (replace(EU, user="u", mechanism="PLAIN"), "password"),
        (replace(EU, password_file="/p"), "needs a user"),
        (replace(EU, tls=True, cert_file="c"), "key_file"),
        (replace(EU, ca_file="c"), "need tls"),
        (replace(EU, user="u", mechanism="PLAIN", password_env="HEADRACE_ENCRYPTION_MASTER_KEY"), "no other secret"),
        (replace(EU, user="u", mechanism="PLAIN", password_env="HEADRACE_LINK_PASSWORD_"), "no other secret"),
        (replace(EU, user="u", mechanism="PLAIN", password_file="/etc/shadow"), "without a path"),
        (replace(EU, user="u", mechanism="PLAIN", password_file=".."), "without a path"),
        (replace(EU, tls=True, ca_file="../ca.pem"), "without a path"),
        (replace(EU, tls=True, cert_file="c", key_file="/k"), "without a path"),
    ],
)
def test_links_that_make_no_sense(link: Link, words: str) -> None:
    with pytest.raises(InvalidLink, match=words):
        check_link(link)


def test_secrets_that_are_meant_for_links() -> None:
    by_variable = replace(EU, user="u", mechanism="PLAIN", password_env="HEADRACE_LINK_PASSWORD_EU")
    check_link(by_variable)
    check_link(replace(by_variable, password_env="", password_file="eu.password", tls=True, ca_file="..data.pem"))


def test_the_image_has_the_same_objects_without_changes() -> None:
    links, mirrors = {"eu": EU}, {COPY.topic_id: COPY}
    assert apply_links(links, []) is links
    assert apply_mirrors(mirrors, []) is mirrors
    paused = replace(EU, is_paused=True)
    assert apply_links(links, [Change(link_key("eu"), encode_link(paused), Revision(7))]) == {"eu": paused}
    assert apply_links(links, [Change(link_key("eu"), None, Revision(7))]) == {}
    faulted = replace(COPY, state=MirrorState.FAULTED, reason="why")
    change = Change(mirror_key(COPY.topic_id), encode_mirror(faulted), Revision(7))
    assert apply_mirrors(mirrors, [change]) == {COPY.topic_id: faulted}
    with pytest.raises(StartupError, match="edited by hand"):
        apply_links(links, [Change(link_key("eu"), b"{", Revision(7))])


def test_patterns_choose_topics() -> None:
    link = replace(EU, topics=("orders.*", "pay."), exclude=(r".*\.tmp",))
    wanted = [name for name in ("orders", "orders.x", "orders.tmp", "pays", "Pays") if link.wants(name)]
    assert wanted == ["orders", "orders.x", "pays"]


def test_a_topic_is_reversed_in_steps_that_can_be_repeated(tmp_path: Path) -> None:
    wanted = replace(COPY, source_promoted_epoch=200, reversed_ms=9)
    ids: list[UUID] = []

    async def use(changes: LinkChanges, metadata: Metadata) -> None:
        topic = await metadata.create_topic("orders", partitions=2)
        ids.append(topic.topic_id)
        with pytest.raises(UnknownLink):
            await changes.reverse(topic.topic_id, wanted)
        await changes.create(EU)
        with pytest.raises(InvalidLink, match="leader epochs"):
            await changes.reverse(topic.topic_id, replace(wanted, source_promoted_epoch=1))
        assert not metadata.image.mirrors
        made = await changes.reverse(topic.topic_id, wanted)
        assert (made.state, made.reverse_epoch) == (MirrorState.REVERSING, 1)
        assert [each.leader_epoch for each in metadata.image.topics[TopicName("orders")].partitions] == [1, 1]
        assert await changes.reverse(topic.topic_id, wanted) == made
        with pytest.raises(InvalidLink, match="failover"):
            await changes.delete("eu")
        for index in (1, 0):
            parting = Parting(index, 3, 8, 8, set_aside=5)
            await changes.change_mirror(topic.topic_id, lambda each, new=parting: each.with_parting(new))  # type: ignore[misc]
        mirroring = await changes.change_mirror(topic.topic_id, lambda each: replace(each, state=MirrorState.MIRRORING))
        assert mirroring.is_set_aside(2)
        assert not mirroring.is_set_aside(3)
        assert await changes.reverse(topic.topic_id, wanted) == mirroring, "another broker has completed it"
        await changes.create(replace(EU, name="asia"))
        with pytest.raises(PolicyViolation, match="already"):
            await changes.reverse(topic.topic_id, replace(wanted, link="asia"))
        await changes.promote(topic.topic_id, 5, 10)
        again = await changes.reverse(topic.topic_id, replace(wanted, source_promoted_epoch=10_000))
        assert (again.state, again.partings) == (MirrorState.REVERSING, ())

    image = run(tmp_path, use)
    assert image.mirrors[ids[0]].state is MirrorState.REVERSING
