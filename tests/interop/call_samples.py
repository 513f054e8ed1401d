"""Samples of what brokers send each other, made and read by whichever version of Headrace runs this.

`python call_samples.py write` prints every call and every kind of answer as bytes; `… read` takes what another version
has printed and prints what it understands, so that the two can be compared.
"""

import json
import sys
import types
import typing
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

import msgspec

from headrace.model.queue_wire import Counts, Move, Peeked, Received, Sent

try:
    from headrace.queues.remote import AnyQueueCall
    from headrace.queues.share.service import ShareCall
    from headrace.queues.state_machine import StatePage
    from headrace.queues.state_store import StateCall
    from headrace.replication.calls import Call, CallRefused, CallResult
except ModuleNotFoundError:  # Headrace 0.1 has the same types in other modules, some by other names.
    from headrace.queues.calls import Call  # type: ignore[no-redef,import-not-found,unused-ignore]
    from headrace.queues.calls import Done as CallResult  # type: ignore[no-redef,import-not-found,unused-ignore]
    from headrace.queues.calls import Refused as CallRefused  # type: ignore[no-redef,import-not-found,unused-ignore]
    from headrace.queues.routing import AnyQueueCall  # type: ignore[no-redef,import-not-found,unused-ignore]
    from headrace.queues.shares import ShareCall  # type: ignore[no-redef,import-not-found,unused-ignore]
    from headrace.queues.state import Page as StatePage  # type: ignore[no-redef,import-not-found,unused-ignore]
    from headrace.queues.store import StateCall  # type: ignore[no-redef,import-not-found,unused-ignore]

CALLS = typing.get_args(AnyQueueCall | ShareCall | StateCall)
ANSWERS = {
    "Sent": Sent,
    "Received": Received,
    "Peeked": Peeked,
    "Move": Move,
    "Counts": Counts,
    "StatePage": StatePage,
    "CallRefused": CallRefused,
    "CallResult": CallResult,
}
_LEAVES: dict[Any, Any] = {str: "text", int: 7, float: 1.5, bool: True, bytes: b"\x00\xff", UUID: UUID(int=5)}


def sample(kind: Any) -> Any:
    """Some value of a type, with everything set that can be."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    if kind is msgspec.Raw:
        return msgspec.Raw(msgspec.msgpack.encode([1, "two"]))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return sample(next(arg for arg in args if arg is not type(None)))
    if origin is tuple:
        return tuple(sample(arg) for arg in args if arg is not Ellipsis)
    if origin is dict:
        return {sample(args[0]): sample(args[1])}
    if origin is not None:
        return [sample(args[0])]
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if name != "level"}
    if is_dataclass(kind):
        make: Any = kind
        return make(**{field.name: sample(hints[field.name]) for field in fields(kind)})
    return kind(*(sample(hint) for hint in hints.values()))


def read(kind: Any, data: bytes) -> Any:
    """A value as this version understands it, without the names of classes; calls are read as those of any kind, as a
    broker does."""
    wanted = AnyQueueCall | ShareCall | StateCall if issubclass(kind, Call) else kind
    found = msgspec.msgpack.decode(data, type=wanted)
    return bytes(found.result).hex() if isinstance(found, CallResult) else msgspec.to_builtins(found)


def main() -> None:
    kinds = {**{kind.__name__: kind for kind in CALLS}, **ANSWERS}
    if sys.argv[1] == "write":
        written = {name: msgspec.msgpack.encode(sample(kind)) for name, kind in kinds.items()}
        print(json.dumps({name: [data.hex(), read(kinds[name], data)] for name, data in written.items()}))
    else:
        given = json.load(sys.stdin)
        print(json.dumps({name: read(kinds[name], bytes.fromhex(text)) for name, text in given.items()}))


if __name__ == "__main__":
    main()
