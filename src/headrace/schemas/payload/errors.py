"""Why a key or a value is not what its schema says. Pure.

InvalidPayload            the value does not fit its schema; `path` says where
└── NotFramed             the bytes do not begin with the id of a schema
"""

from headrace.model.errors import HeadraceError

_MAX_PATH = 200


class InvalidPayload(HeadraceError):
    """A value that does not fit its schema. `path` leads to the part that does not, such as `lines[2].price`."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem = problem
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}" if self.path else self.problem

    def within(self, part: str) -> "InvalidPayload":
        """The same error, seen from the value that contains this one: `part` is a field's name or `[index]`."""
        rest = self.path if len(self.path) <= _MAX_PATH else "…" + self.path[-_MAX_PATH // 2 :]
        joined = part + rest if not rest or rest.startswith("[") else f"{part}.{rest}"
        return type(self)(self.problem, joined)


class NotFramed(InvalidPayload):
    """The bytes do not begin with the id of a schema."""
