"""A request to the registry and its reply, apart from HTTP. Pure.

Any broker takes it; the leader of `_schemas` answers.
"""

from typing import Any, TypeVar

import msgspec

from headrace.schemas.errors import SchemaFault

T = TypeVar("T")


BETWEEN_VALUES = "\n"
"""Between the values of a parameter of the query that is given several times."""


class RegistryRequest(msgspec.Struct, frozen=True):
    method: str
    parts: tuple[str, ...]
    """The parts of the path between slashes, decoded; without the prefix of the door."""
    query: dict[str, str] = {}
    body: bytes = b""
    is_repeat: bool = False
    """Whether a broker sends it again, and the first time may have changed the state."""

    def values(self, name: str) -> list[str]:
        """The values of a parameter that may be given several times."""
        return self.query[name].split(BETWEEN_VALUES) if name in self.query else []

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        text = self.query.get(name, "")
        try:
            return int(text) if text else default
        except ValueError:
            raise MalformedRequest(f"{name} is not a number: {text[:40]!r}") from None

    def read(self, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except msgspec.MsgspecError as error:
            raise MalformedRequest(f"the body is not as expected: {error}") from None


class RegistryReply(msgspec.Struct, frozen=True):
    status: int
    body: bytes


class MalformedRequest(SchemaFault):
    status = 422
    code = 422


class UnknownRoute(SchemaFault):
    status = 404
    code = 404


def reply(value: Any, status: int = 200) -> RegistryReply:
    return RegistryReply(status, msgspec.json.encode(value))


def refusal(error: SchemaFault) -> RegistryReply:
    return reply({"error_code": error.code, "message": str(error)}, error.status)
