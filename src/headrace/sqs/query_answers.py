"""Answers of the older protocol: XML, or JSON for a client that accepts it.

The JSON is not that of the newer protocol. It has the elements of the XML, with null for what is absent, maps as lists
of names and values, and lists by the names that AWS's service has for them inside.
"""

from base64 import b64encode
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from headrace.sqs.contents import replace_invalid
from headrace.sqs.errors import SqsError

_XML = b"text/xml"
_JSON = b"application/json"
_NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
_NO_ACTION = "MissingAction"
_MAP_ENTRIES = {
    "Attributes": ("Attribute", "Name"),
    "MessageAttributes": ("MessageAttribute", "Name"),
    "Tags": ("Tag", "Key"),
}
"""How maps are written in XML."""
_LISTED_TEXTS = {"QueueUrls": "QueueUrl", "queueUrls": "QueueUrl"}
_LISTED_STRUCTS = {"Messages": "Message"}
"""The element of each item in a list; entries of batches and of move tasks are named after their class."""
_JSON_NAMES = {"Messages": "messages", "QueueUrls": "queueUrls"}
"""Lists that have another name in the JSON."""

_encode_json = msgspec.json.Encoder(order="sorted").encode


Answer = tuple[bytes, bytes]
"""Content type and body."""


def write(action: str, result: msgspec.Struct | None, request_id: str, accept: str) -> Answer:
    """`accept` is the header of that name."""
    if _accepts_json(accept):
        return _JSON, _json_answer(action, result, request_id)
    return _XML, _xml_answer(action, result, request_id)


def write_error(error: SqsError, request_id: str, accept: str) -> Answer:
    if error.code == _NO_ACTION:
        return _XML, b"<UnknownOperationException/>\n"
    if _accepts_json(accept):
        return _JSON, _json_error(error, request_id)
    return _XML, _xml_error(error, request_id)


def _accepts_json(accept: str) -> bool:
    return any(each.partition(";")[0].strip().lower() == "application/json" for each in accept.split(","))


# -- XML


def _xml_answer(action: str, result: msgspec.Struct | None, request_id: str) -> bytes:
    parts = [f'<?xml version="1.0"?><{action}Response xmlns="{_NAMESPACE}">']
    if result is not None:
        members: list[str] = []
        _write_struct(members, result)
        parts += (f"<{action}Result>", *members, f"</{action}Result>") if members else (f"<{action}Result/>",)
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
                    element = _LISTED_STRUCTS.get(name, type(item).__name__)
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


def _xml_error(error: SqsError, request_id: str) -> bytes:
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{_NAMESPACE}"><Error><Type>{_fault(error)}</Type>'
        f"<Code>{_text(error.code)}</Code><Message>{_text(_sentence(error))}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def _fault(error: SqsError) -> str:
    return "Sender" if error.is_senders_fault else "Receiver"


def _sentence(error: SqsError) -> str:
    if error.code == _NO_QUEUE:
        return str(error).removesuffix(".") + " for this wsdl version."
    return str(error)


# -- JSON


def _json_answer(action: str, result: msgspec.Struct | None, request_id: str) -> bytes:
    answer: dict[str, Any] = {"ResponseMetadata": {"RequestId": request_id}}
    if result is not None:
        answer[f"{action}Result"] = _members(result)
    return _encode_json({f"{action}Response": answer})


def _members(struct: msgspec.Struct) -> dict[str, Any]:
    return {_JSON_NAMES.get(name, name): _value(name, getattr(struct, name)) for name in struct.__struct_fields__}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _members(value)
    if isinstance(value, Mapping):
        key = _MAP_ENTRIES[name][1]
        return [{key: each, "Value": _value("", its)} for each, its in value.items()]
    if isinstance(value, list):
        return [_value("", each) for each in value]
    return value


def _json_error(error: SqsError, request_id: str) -> bytes:
    fields = {"Type": _fault(error), "Code": error.code, "Message": _sentence(error)}
    return _encode_json({"Error": fields, "RequestId": request_id})
