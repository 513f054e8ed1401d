"""A client reads what a broker writes: every API and version of random answers, and none that lies about a length."""

import random
from io import BytesIO

import pytest
from kio.index import load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from headrace.model.errors import ProtocolError
from headrace.protocol.client_codec import read_response, read_response_header, request_header
from headrace.protocol.codec import API_VERSIONS_KEY, is_flexible

from .test_bounds import random_entity

USED = (0, 2, 3, 8, 9, 10, 18, 19, 20, 21, 22, 24, 26, 32, 37, 44)
RESPONSES = [
    (key, version)
    for key in USED
    for version, kinds in schema_name_map[api_key_map[key]].items()
    if EntityType.response in kinds
]


@pytest.mark.parametrize(("key", "version"), RESPONSES)
def test_random_answers(key: int, version: int) -> None:
    schema = load_response_schema(key, version)
    chance = random.Random(key * 100 + version)
    for _ in range(3):
        answer = random_entity(schema, chance, many=3)
        buffer = BytesIO()
        entity_writer(schema)(buffer, answer)
        data = buffer.getvalue()
        assert read_response(key, version, b"head" + data, 4) == answer
        for size in (0, len(data) // 2, len(data) - 1):
            with pytest.raises(ProtocolError):
                read_response(key, version, data[:size], 0)


def test_headers() -> None:
    assert read_response_header(3, 12, b"\x00\x00\x00\x05\x00rest") == (5, 5)
    assert read_response_header(3, 8, b"\x00\x00\x00\x05rest") == (5, 4)
    assert read_response_header(API_VERSIONS_KEY, 4, b"\x00\x00\x00\x05rest") == (5, 4)
    with pytest.raises(ProtocolError):
        read_response_header(3, 12, b"\x00\x00")
    assert is_flexible(3, 12)
    assert request_header(3, 12, 9, "me").endswith(b"\x00\x02me\x00")
