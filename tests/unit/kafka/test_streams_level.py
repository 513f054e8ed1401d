"""Below feature level 2 there are no streams groups: nothing is written that the version before cannot read."""

from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config.group import GROUP_SETTINGS
from headrace.config.settings import storable
from headrace.kafka.dispatch import APIS
from headrace.model.errors import SettingsError
from headrace.model.features import FIRST_LEVEL, LATEST_LEVEL, STREAMS_LEVEL, level
from headrace.protocol.codec import response_schema

HEARTBEAT, DESCRIBE = 88, 89


def context(key: int) -> Any:
    """What handlers may look at before they refuse: no group, no shard."""
    metadata = SimpleNamespace(image=SimpleNamespace(feature_level=FIRST_LEVEL))
    return SimpleNamespace(services=SimpleNamespace(metadata=metadata), schema=response_schema(key, 0))


def test_a_heartbeat_is_refused_in_words() -> None:
    answer: Any = APIS[HEARTBEAT].handler(context(HEARTBEAT), SimpleNamespace())
    assert answer.error_code is ErrorCode.unsupported_version
    assert "headrace cluster upgrade" in answer.error_message


def test_so_is_a_description() -> None:
    request = SimpleNamespace(group_ids=["g"], include_authorized_operations=False)
    answer: Any = APIS[DESCRIBE].handler(context(DESCRIBE), request)
    assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", ErrorCode.unsupported_version)]


def test_the_feature_and_the_settings_come_with_the_level() -> None:
    assert "streams.version" not in level(STREAMS_LEVEL - 1).kafka_features
    assert level(STREAMS_LEVEL).kafka_features["streams.version"] == 1
    for name in [name for name in GROUP_SETTINGS if name.startswith("streams.")]:
        with pytest.raises(SettingsError):
            storable(GROUP_SETTINGS, {name: "7"}, FIRST_LEVEL, lambda row: row.default)
        assert storable(GROUP_SETTINGS, {name: "7"}, LATEST_LEVEL, lambda row: row.default) == {name: "7"}
