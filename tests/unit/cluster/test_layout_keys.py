"""The records of topics' data keys, and their place in the image."""

from uuid import uuid4

import pytest

from headrace.cluster.image_changes import apply_changes, image_from
from headrace.cluster.layout_keys import data_keys_key, decode_data_keys, encode_data_keys
from headrace.cluster.store import Change, Revision, Snapshot
from headrace.model.data_keys import TopicDataKeys, WrappedKey
from headrace.model.errors import StartupError

_KEYS = TopicDataKeys((WrappedKey(2, b"\x00\xffwrapped", "a1b2", 17),), last_version=2, shredded_ms=12)


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode_data_keys("/data-keys/x", encode_data_keys(_KEYS)) == _KEYS


def test_a_record_that_cannot_be_decoded_is_named() -> None:
    with pytest.raises(StartupError, match="/data-keys/x cannot be decoded"):
        decode_data_keys("/data-keys/x", b"{}")


def test_data_keys_enter_and_leave_the_image() -> None:
    topic_id = uuid4()
    key = data_keys_key(topic_id)
    image = image_from(Snapshot({}, Revision(1)), "cluster", None)
    image = apply_changes(image, [Change(key, encode_data_keys(_KEYS), Revision(2))])
    assert image.data_keys == {topic_id: _KEYS}
    assert apply_changes(image, [Change(key, None, Revision(3))]).data_keys == {}
