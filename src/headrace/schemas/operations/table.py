"""The table of operations: method, path, the permission that each needs, and its function.

    @operation("GET", "/subjects/{subject}/versions", needs=READ_SUBJECT)
    async def list_versions(call: RegistryCall) -> RegistryReply: ...

An operation without `needs` does not register. The tests generate a matrix of requests from this table.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.model.acls import AclOperation
from headrace.schemas.checker import SchemaChecker
from headrace.schemas.errors import InvalidVersion
from headrace.schemas.machine import LATEST, SchemaMachine
from headrace.schemas.requests import RegistryReply, RegistryRequest, UnknownRoute
from headrace.schemas.subjects import DEFAULT_CONTEXT, check_subject, qualified

A = TypeVar("A")

MAX_LISTED = 10_000
"""Entries of one answer; `offset` and `limit` lead to the others."""
MAX_LISTED_BYTES = 4 * 1024 * 1024
"""Of one answer that has texts."""
_ENTRIES_OF_A_TURN = 500
"""Each takes some microseconds."""
_encode = msgspec.json.Encoder().encode


class RegistryNeed(NamedTuple):
    """An operation on the topic of a subject, or on the cluster."""

    operation: AclOperation
    is_of_subject: bool = True


READ_SUBJECT = RegistryNeed(AclOperation.DESCRIBE)
WRITE_SUBJECT = RegistryNeed(AclOperation.WRITE)
DELETE_SUBJECT = RegistryNeed(AclOperation.DELETE)
ALTER_SUBJECT = RegistryNeed(AclOperation.ALTER)
ALTER_REGISTRY = RegistryNeed(AclOperation.ALTER, is_of_subject=False)
LIST_SUBJECTS = None
"""For lists, which leave out what the caller may not describe."""


@dataclass(frozen=True, slots=True)
class RegistryCall:
    """A request, with the state that it is answered from."""

    request: RegistryRequest
    names: Mapping[str, str]
    """The named parts of the path."""
    context: str
    """The context of the base URL."""
    machine: SchemaMachine
    checker: SchemaChecker
    commit: "CommitChange"
    shows: Callable[[str], bool]
    """Whether the caller may see a subject."""
    cluster_id: str = ""

    @property
    def subject(self) -> str:
        return check_subject(qualified(self.context, self.names["subject"]))

    @property
    def read_subject(self) -> str:
        """The subject that a read is about: if its settings name an alias, that one, if the caller may see it."""
        subject = self.subject
        meant = check_subject(self.machine.meant(subject))
        return meant if meant == subject or self.shows(meant) else subject

    @property
    def scope(self) -> str | None:
        """The subject of a setting or mode, which may stand for a context; None for the global one."""
        name = self.names.get("subject")
        if name is None:
            return None if self.context == DEFAULT_CONTEXT else f":{self.context}:"
        return qualified(self.context, name)

    @property
    def version(self) -> int:
        return parsed_version(self.names["version"])

    def page(self, found: list[A]) -> list[A]:
        """The part of a list that `offset` and `limit` choose."""
        return found[max(0, self.request.number("offset", 0)) : self.page_end]

    @property
    def page_end(self) -> int:
        """How many entries of a list are needed for the page that is asked for."""
        first, limit = max(0, self.request.number("offset", 0)), self.request.number("limit", -1)
        return first + (MAX_LISTED if limit < 0 else min(limit, MAX_LISTED))

    async def page_of_bytes(self, found: list[A], answer: Callable[[A], object]) -> list[msgspec.Raw]:
        """The answers for a page of a list, which ends before `MAX_LISTED_BYTES`, but has one at the least."""
        encoded: list[msgspec.Raw] = []
        size = 0
        async for each in in_turns(self.page(found)):
            text = _encode(answer(each))
            size += len(text)
            if encoded and size > MAX_LISTED_BYTES:
                break
            encoded.append(msgspec.Raw(text))
        return encoded


async def in_turns(found: Sequence[A]) -> AsyncIterator[A]:
    """The entries of a list that may be long: others get their turn of the event loop in between."""
    for at, each in enumerate(found, 1):
        yield each
        if not at % _ENTRIES_OF_A_TURN:
            await asyncio.sleep(0)


class CommitChange:
    """Writes the records of a change, and returns its answer when they are committed."""

    async def __call__(self, change: Callable[[], Outcome[InternalRecord, A]]) -> A:
        raise NotImplementedError


RegistryHandler = Callable[[RegistryCall], Awaitable[RegistryReply]]


@dataclass(frozen=True, slots=True)
class RegistryOperation:
    method: str
    path: tuple[str, ...]
    needs: RegistryNeed | None
    handler: RegistryHandler


OPERATIONS: list[RegistryOperation] = []


def operation(method: str, path: str, *, needs: RegistryNeed | None) -> Callable[[RegistryHandler], RegistryHandler]:
    """Register a handler."""

    def register(handler: RegistryHandler) -> RegistryHandler:
        OPERATIONS.append(RegistryOperation(method, tuple(path.strip("/").split("/")), needs, handler))
        return handler

    return register


class FoundOperation(NamedTuple):
    operation: RegistryOperation
    names: Mapping[str, str]
    context: str


def find_operation(request: RegistryRequest) -> FoundOperation:
    """The operation of a request; `UnknownRoute` if there is none."""
    parts, context = request.parts, DEFAULT_CONTEXT
    if len(parts) > 2 and parts[0] == "contexts":
        context, parts = _context(parts[1]), parts[2:]
    for each in OPERATIONS:
        if each.method == request.method and len(each.path) == len(parts):
            names = _match(each.path, parts)
            if names is not None:
                return FoundOperation(each, names, context)
    raise UnknownRoute("HTTP 404 Not Found")


def parsed_version(text: str) -> int:
    """The number of a version; `latest` and -1 are the newest one."""
    if text == "latest":
        return LATEST
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number != LATEST and not 1 <= number < 2**31:
        raise InvalidVersion(
            f"The specified version '{text[:40]}' is not a valid version id. Allowed values are between [1, 2^31-1] "
            'and the string "latest"'
        )
    return number


def _context(name: str) -> str:
    name = name.strip(":")
    return name if name.startswith(".") else f".{name}"


def _match(pattern: tuple[str, ...], parts: tuple[str, ...]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = part
        elif expected != part:
            return None
    return names
