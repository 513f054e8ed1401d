"""Settings of librdkafka are checked when a client is made."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from headrace import Client, ClientError, aio
from headrace.client.librdkafka_settings import _KNOWN


@pytest.mark.parametrize("kind", [Client, aio.Client])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"compresion.type": "zstd"}, "'compresion.type': there is no such setting; did you mean compression.type?"),
        ({"acks": "all", "linger_ms": 5}, "'linger_ms': there is no such setting; did you mean linger.ms?"),
        ({"security_protocol": "SSL"}, "did you mean security.protocol?"),
        ({"zzzz": 1}, "'zzzz': there is no such setting"),
        ({"linger.ms": "soon"}, "'linger.ms': Invalid value"),
        ({"error_cb": "none"}, "'error_cb': expected error_cb property as a callable function"),
    ],
)
def test_a_setting_that_librdkafka_does_not_take_is_an_error_at_once(
    kind: Callable[..., Any], settings: dict[str, Any], says: str
) -> None:
    with pytest.raises(ClientError) as caught:
        kind("localhost:1", settings=settings)
    assert says in str(caught.value)


def test_settings_for_producers_or_consumers_alone_are_taken_and_nothing_is_started() -> None:
    threads = threading.active_count()
    settings = {"linger.ms": 5, "fetch.min.bytes": 1, "group.protocol": "consumer", "on_commit": print, "acks": -1}
    for _ in range(20):
        Client("localhost:1", settings=settings)
    assert threading.active_count() == threads


def test_every_name_that_is_suggested_exists() -> None:
    not_for_a_producer = {"on_commit", "plugin.library.paths"}
    for name in set(_KNOWN.split()) - not_for_a_producer:
        with pytest.raises((KafkaException, TypeError, ValueError)) as caught:
            Producer({name: "x", "no.such.setting": ""})
        assert f'property: "{name}"' not in str(caught.value)
