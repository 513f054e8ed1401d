"""Where queues are served over HTTP, and for whom."""

import pytest

from headrace.config.broker import broker_settings
from headrace.config.broker_checks import access_keys
from headrace.model.errors import SettingsError
from headrace.model.image import Endpoint


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, Endpoint("127.0.0.1", 9324)),
        ({"kafka.listen": "0.0.0.0:9093", "insecure": "true"}, Endpoint("127.0.0.1", 9325)),
        ({"kafka.listen": "127.0.0.1:0"}, Endpoint("127.0.0.1", 0)),
        ({"kafka.listen": ":65500", "insecure": "true"}, Endpoint("127.0.0.1", 0)),
        ({"http.listen": "localhost:80"}, Endpoint("localhost", 80)),
        ({"http.listen": "[::1]:0"}, Endpoint("::1", 0)),
        ({"http.listen": ":9324", "sqs.access.keys": "me:secret"}, Endpoint("", 9324)),
        ({"http.listen": "off"}, None),
    ],
)
def test_where_it_listens(settings: dict[str, str], expected: Endpoint | None) -> None:
    assert broker_settings(settings).http_address == expected


@pytest.mark.parametrize("listen", [":9324", "0.0.0.0:0", "192.0.2.1:80", "queues.example.org:80"])
def test_nobody_else_gets_in_without_keys(listen: str) -> None:
    with pytest.raises(SettingsError, match="without authentication"):
        broker_settings({"http.listen": listen})


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("http.listen", "9324", "no port"),
        ("sqs.account.id", "12", "12 digits"),
        ("sqs.region", "", "not a region"),
        ("sqs.access.keys", "abc", "number 1 is not ID:SECRET"),
        ("sqs.access.keys", "a:b,a:c", "a is listed twice"),
    ],
)
def test_mistakes_are_told(name: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        broker_settings({name: value})


def test_secrets_may_have_colons_and_slashes() -> None:
    assert access_keys("AKIA1:se/cr+et, AKIA2:with:colon ") == {"AKIA1": "se/cr+et", "AKIA2": "with:colon"}


def test_a_mistake_among_the_keys_tells_no_secret() -> None:
    with pytest.raises(SettingsError) as caught:
        broker_settings({"sqs.access.keys": "ok:hidden1,hidden2"})
    assert "hidden" not in str(caught.value)
