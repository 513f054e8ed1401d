import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.errors import CommandFailed
from headrace.cli.lines import LineMessage, parse_json, parse_text, render_json, render_text

maybe_bytes = st.none() | st.binary(max_size=40)


@given(
    key=maybe_bytes,
    value=maybe_bytes,
    headers=st.lists(st.tuples(st.text(max_size=8), maybe_bytes), max_size=3),
    partition=st.integers(0, 2**31 - 1),
    timestamp_ms=st.integers(0, 2**40),
)
def test_what_consume_writes_as_json_produce_reads_back(key, value, headers, partition, timestamp_ms):
    message = LineMessage(value, key, headers, partition, timestamp_ms)
    assert parse_json(render_json(7, message)) == message


def test_json_text_is_kept_as_it_is():
    assert json.loads(render_json(3, LineMessage("grüß".encode(), b"\xff", (), 0, 5))) == {
        "partition": 0,
        "offset": 3,
        "timestamp": 5,
        "key": {"base64": "/w=="},
        "value": "grüß",
        "headers": [],
    }


def test_structured_json_values_are_sent_as_their_json_text():
    assert parse_json(b'{"value": {"a": [1, 2]}, "key": 5}') == LineMessage(b'{"a": [1, 2]}', b"5", [])


def test_a_value_that_is_json_is_written_as_json():
    written = render_json(3, LineMessage(b'{"item": "tea", "price": 1.10}', b"[7]", (), 0, 5))
    assert b'"key":[7],"value":{"item": "tea", "price": 1.10}' in written
    assert json.loads(written)["value"] == {"item": "tea", "price": 1.1}
    several_lines = render_json(3, LineMessage(b'{\n  "item": "tea"\n}\n', None, (), 0, 5))
    assert several_lines.count(b"\n") == 1
    assert json.loads(several_lines)["value"] == {"item": "tea"}


@pytest.mark.parametrize(
    "value",
    [
        *(b"42", b"null", b"true", b'"quoted"', b"{not json}", b"[NaN]", b"[1e999]", b"[" * 100_000),
        b'{"base64": "AAAA"}',
        b'{"a": "\xff"}',
    ],
)
def test_what_would_not_be_read_back_the_same_is_a_string(value):
    message = LineMessage(value, None, [], 0, 5)
    written = render_json(3, message)
    assert not isinstance(json.loads(written)["value"], list | int)
    assert parse_json(written) == message


@given(value=st.recursive(st.none() | st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists))
def test_json_is_read_back_as_it_was_written(value):
    message = LineMessage(json.dumps({"it": value}, ensure_ascii=False).encode(errors="replace"), None, [], 0, 5)
    assert parse_json(render_json(7, message)) == message


def test_headers_may_be_an_object():
    assert parse_json(b'{"value": "v", "headers": {"a": "b"}}').headers == [("a", b"b")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"hello", "not JSON"),
        (b"[1]", "not an object"),
        (b'{"valeu": "typo"}', "not an object with the fields"),
        (b'{"partition": -1}', "partition must be"),
        (b'{"timestamp": "now"}', "timestamp must be"),
        (b'{"headers": [["a"]]}', "headers must be"),
        (b'{"value": {"base64": "?"}}', "not base64"),
    ],
)
def test_a_bad_json_line_is_refused_with_the_reason(line, reason):
    with pytest.raises(CommandFailed, match=reason):
        parse_json(line)


def test_a_text_line_is_split_at_the_first_separator_only():
    assert parse_text(b"k:v:w", b":") == LineMessage(b"v:w", b"k")
    assert parse_text(b"no key", b":") == LineMessage(b"no key")
    assert parse_text(b"k:v", None) == LineMessage(b"k:v")


def test_text_is_the_value_with_the_key_in_front_on_request():
    assert render_text(LineMessage(b"v", b"k"), None) == b"v\n"
    assert render_text(LineMessage(b"v", b"k"), b"\t") == b"k\tv\n"
    assert render_text(LineMessage(None, None), b"\t") == b"\t\n"
