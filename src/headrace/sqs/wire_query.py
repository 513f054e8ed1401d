"""The older protocol of SQS: the action and its parameters are fields of a form, or of the URL, and the answer is XML.

Lists and maps are fields with numbers: `Attribute.1.Name=DelaySeconds&Attribute.1.Value=5`.
"""

from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from headrace.sqs import errors
from headrace.sqs.calls import ACTIONS, Registered
from headrace.sqs.contents import replace_invalid
from headrace.sqs.errors import SqsError

CONTENT_TYPE = b"text/xml"
_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_MOST_FIELDS = 2_000

_LISTS = {
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "AttributeName": "AttributeNames",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "SendMessageBatchRequestEntry": "Entries",
    "TagKey": "TagKeys",
}
"""Fields with numbers that are lists, and what the list is called in the request."""
_MAPS = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"),
    "Tag": ("Tags", "Key"),
    "Tags": ("Tags", "Key"),
}
"""Those that are maps, what the map is called, and which field is the key."""
_MAP_ENTRIES = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}
"""How maps are written in an answer."""
_LISTED_TEXTS = {"QueueUrls": "QueueUrl", "queueUrls": "QueueUrl"}

Fields = list[tuple[str, str]]
_Tree = dict[str, Any]


def fields(query_string: bytes, body: bytes) -> Fields:
    """What is in the URL, and then what is in the form."""
    try:
        return [
            pair
            for text in (query_string.decode("ascii"), body.decode("utf-8"))
            for pair in parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        ]
    except ValueError:
        raise errors.malformed("The request is not a form in UTF-8, or has too many fields.") from None


def find(given: Fields) -> Registered:
    name = next((value for field, value in given if field == "Action"), "")
    if not name:
        raise errors.missing_action()
    found = ACTIONS.get(name)
    if found is None:
        raise errors.unknown_operation(name)
    return found


def read(wanted: Registered, given: Fields, path: str) -> Any:
    """The request. A queue that is not named is that of the URL's path."""
    tree: _Tree = {}
    for name, value in given:
        _put(tree, name.split("."), value)
    values = _structure(tree)
    if "QueueUrl" in wanted.request.__struct_fields__ and "QueueUrl" not in values and path.strip("/"):
        values["QueueUrl"] = path
    if "tags" in wanted.request.__struct_fields__ and "Tags" in values:
        values["tags"] = values.pop("Tags")
    try:
        return msgspec.convert(values, wanted.request, strict=False)
    except msgspec.ValidationError as error:
        raise errors.malformed(f"The request is not what {wanted.name} takes: {error}.") from None


def _put(tree: _Tree, path: list[str], value: str) -> None:
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise errors.malformed(f"The field {'.'.join(path)} does not go together with {part}.")
        tree = below
    tree[path[-1]] = value


def _structure(tree: _Tree) -> _Tree:
    """Numbered fields as lists and maps, by the names that the JSON protocol has for them."""
    made: _Tree = {}
    for name, below in tree.items():
        if not isinstance(below, dict):
            made[name] = below
        elif name in _LISTS:
            made[_LISTS[name]] = [_structure(each) if isinstance(each, dict) else each for each in _numbered(below)]
        elif name in _MAPS:
            called, key = _MAPS[name]
            made[called] = dict(_entries(_numbered(below), key))
        else:
            made[name] = _structure(below)
    return made


def _numbered(below: _Tree) -> list[Any]:
    # Some clients leave out the number where there is one only, and some write `entry.1` or `member.1`.
    for between in ("entry", "member"):
        if isinstance(below.get(between), dict):
            below = below[between]
    if not all(number.isascii() and number.isdigit() for number in below):
        return [below]
    return [below[number] for number in sorted(below, key=int)]


def _entries(found: list[Any], key: str) -> Iterator[tuple[str, Any]]:
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get(key), str):
            raise errors.malformed(f"A numbered field has no {key}.")
        yield each[key], each.get("Value", "")


def write(action: str, result: msgspec.Struct | None, request_id: str) -> bytes:
    parts = [f'<?xml version="1.0"?><{action}Response xmlns="{_NAMESPACE}">']
    if result is not None:
        parts.append(f"<{action}Result>")
        _write_struct(parts, result)
        parts.append(f"</{action}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>")
    return "".join(parts).encode()


def _write_struct(parts: list[str], struct: msgspec.Struct) -> None:
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if value is None:
            continue
        if isinstance(value, Mapping):
            element, key = _MAP_ENTRIES[name]
            for each, its in value.items():
                parts.append(f"<{element}><{key}>{_text(each)}</{key}><Value>")
                if isinstance(its, msgspec.Struct):
                    _write_struct(parts, its)
                else:
                    parts.append(_text(its))
                parts.append(f"</Value></{element}>")
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, msgspec.Struct):
                    element = type(item).__name__
                    parts.append(f"<{element}>")
                    _write_struct(parts, item)
                    parts.append(f"</{element}>")
                else:
                    parts.append(f"<{_LISTED_TEXTS[name]}>{_text(item)}</{_LISTED_TEXTS[name]}>")
        else:
            parts.append(f"<{name}>{_text(value)}</{name}>")


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    # A carriage return would be read as a line feed.
    return escape(replace_invalid(str(value)), {"\r": "&#xD;", '"': "&quot;"})


def write_error(error: SqsError, request_id: str) -> bytes:
    fault = "Sender" if error.is_senders_fault else "Receiver"
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{fault}</Type>'
        f"<Code>{_text(error.code)}</Code><Message>{_text(error)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()
