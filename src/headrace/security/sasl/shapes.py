"""The shapes of the SCRAM credentials that users have: their iterations and the size of their salt.

A challenge shows both to anyone who asks. Clients that set passwords choose them (Kafka's tools take 4096 iterations
and 26 bytes), so a made-up credential with other ones would show that its user does not exist.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.model.users import User


class CredentialShape(NamedTuple):
    iterations: int
    salt_bytes: int


class CredentialShapes:
    """The distinct shapes by mechanism, computed again when the users have changed."""

    def __init__(self, users: Callable[[], Mapping[str, User]]) -> None:
        """`users` returns a mapping that is replaced, and not altered, by a change."""
        self._users = users
        self._known: tuple[Mapping[str, User] | None, Mapping[str, frozenset[CredentialShape]]] = (None, {})

    def __call__(self, mechanism: str) -> frozenset[CredentialShape]:
        users, (known_users, shapes) = self._users(), self._known
        if users is not known_users:
            shapes = _shapes_of(users)
            self._known = (users, shapes)
        return shapes.get(mechanism, frozenset())


def _shapes_of(users: Mapping[str, User]) -> Mapping[str, frozenset[CredentialShape]]:
    found: dict[str, set[CredentialShape]] = {}
    for user in users.values():
        for mechanism, credential in user.credentials.items():
            found.setdefault(mechanism, set()).add(CredentialShape(credential.iterations, len(credential.salt)))
    return {mechanism: frozenset(shapes) for mechanism, shapes in found.items()}
