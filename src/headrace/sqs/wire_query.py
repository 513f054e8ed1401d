"""The older protocol of SQS: the action and its parameters are fields of a form, or of the URL, and the answer is XML.

Lists and maps are fields with numbers: `Attribute.1.Name=DelaySeconds&Attribute.1.Value=5`. As with AWS a list may go
without a number where it has one item (`AttributeName=All`), may be called by its name in the JSON protocol, and is
empty where its only field is (`AttributeNames=`).

A client that accepts JSON gets the answer as JSON: see `query_answers`.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from headrace.sqs import errors
from headrace.sqs.calls import ACTIONS, RegisteredAction

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
}
"""Those that are maps, what the map is called, and which field is the key."""
# By the names of the JSON protocol, too: AWS takes either.
_LISTS |= {name: name for name in _LISTS.values()}
_MAPS |= {name: (name, key) for name, key in _MAPS.values()}
_NOT_OF_A_QUEUE = frozenset({"CreateQueue", "ListQueues"})
"""Actions that AWS does not take at the URL of a queue."""
_MOST_DIGITS = 9
_MOST_PARTS = 10
"""The most parts of a field name: the longest that have a meaning have seven."""

Fields = list[tuple[str, str]]
_Tree = dict[str, Any]


def fields(query_string: bytes, body: bytes) -> Fields:
    """The fields of the URL, followed by those of the form."""
    try:
        return [
            pair
            for text in (query_string.decode("ascii"), body.decode("utf-8"))
            for pair in parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
        ]
    except ValueError:
        raise errors.malformed("The request is not a form in UTF-8, or has too many fields.") from None


def find(given: Fields, path: str) -> RegisteredAction:
    name = next((value for field, value in given if field == "Action"), "")
    if not name:
        raise errors.missing_action()
    found = ACTIONS.get(name)
    if found is None or (name in _NOT_OF_A_QUEUE and path.strip("/").count("/") == 1):
        raise errors.unknown_operation(name)
    return found


def read(wanted: RegisteredAction, given: Fields, path: str) -> Any:
    """The request. A queue that is not named is that of the URL's path."""
    tree: _Tree = {}
    for name, value in given:
        _put(tree, name.split("."), value)
    values, known = _structure(tree), wanted.request.__struct_fields__
    if "QueueUrl" in known and "QueueUrl" not in values and path.strip("/"):
        values["QueueUrl"] = path
    if "tags" in known and "Tags" in values:
        values["tags"] = values.pop("Tags")
    if "Entries" in known:
        # A batch without entries cannot be distinguished from one that was left out.
        values.setdefault("Entries", [])
    try:
        return msgspec.convert(values, wanted.request, strict=False)
    except msgspec.ValidationError as error:
        raise errors.malformed(f"The request is not what {wanted.name} takes: {error}.") from None


def _put(tree: _Tree, path: list[str], value: str) -> None:
    if len(path) > _MOST_PARTS:
        raise errors.malformed(f"The name of a field has more than {_MOST_PARTS} parts.")
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise errors.malformed(f"The field {'.'.join(path)} does not go together with {part}.")
        tree = below
    name = path[-1]
    if name in _LISTS and isinstance(tree.get(name, []), list):
        # A list without numbers: each field of this name is an item.
        tree.setdefault(name, []).append(value)
    else:
        tree[name] = value


def _structure(tree: _Tree) -> _Tree:
    """Numbered fields as lists and maps, by the names that the JSON protocol has for them."""
    made: _Tree = {}
    for name, below in tree.items():
        if name in _LISTS:
            made[_LISTS[name]] = [_structure(each) if isinstance(each, dict) else each for each in _items(below)]
        elif name in _MAPS:
            called, key = _MAPS[name]
            made[called] = dict(_entries(_items(below), key))
        elif isinstance(below, dict):
            made[name] = _structure(below)
        else:
            made[name] = below
    return made


def _items(below: _Tree | list[str] | str) -> list[Any]:
    """The items of a list; one that is empty stands for none, as botocore writes it."""
    if isinstance(below, dict):
        return _numbered(below)
    texts = [below] if isinstance(below, str) else below
    return [] if texts == [""] else texts


def _numbered(below: _Tree) -> list[Any]:
    # Some clients leave out the number where there is one only, and some write `entry.1` or `member.1`.
    for between in ("entry", "member"):
        if isinstance(below.get(between), dict):
            below = below[between]
    if not all(number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS for number in below):
        return [below]
    return [below[number] for number in sorted(below, key=int)]


def _entries(found: list[Any], key: str) -> Iterator[tuple[str, Any]]:
    for each in found:
        if not isinstance(each, dict) or not isinstance(each.get(key), str):
            raise errors.malformed(f"A numbered field has no {key}.")
        yield each[key], each.get("Value", "")
