"""Decides which clients lose their connection when users change.

A client that has logged in with a password belongs to the credential that verified it: once that is deleted or
replaced, its connections are closed. Clients that were authenticated by a certificate or a token belong to no
credential here: their authority and their token's expiry decide.
"""

from collections.abc import Mapping

from headrace.model.users import ScramCredential, User, principal_of
from headrace.security.sasl.mechanism import PLAIN
from headrace.security.sasl.plain import preferred_credential
from headrace.security.sasl.scram import HASHES
from headrace.security.subject import Subject

Users = Mapping[str, User]


class Revocation:
    """The change of users from one image of the cluster to the next."""

    def __init__(self, old: Users, new: Users) -> None:
        self._changed = (
            {} if old is new else {principal_of(name): name for name, user in old.items() if new.get(name) != user}
        )
        self._old = old
        self._new = new

    def __bool__(self) -> bool:
        """Whether any user has lost a credential."""
        return bool(self._changed)

    def revokes(self, subject: Subject) -> bool:
        """Whether the credential that verified a client is no longer valid."""
        name = self._changed.get(subject.principal)
        if name is None or subject.mechanism not in (PLAIN, *HASHES):
            return False
        return _verifying(self._old.get(name), subject.mechanism) != _verifying(self._new.get(name), subject.mechanism)


def _verifying(user: User | None, mechanism: str) -> ScramCredential | None:
    """The credential that verifies a user with a mechanism."""
    if mechanism == PLAIN:
        return preferred_credential(user)
    return None if user is None else user.credentials.get(mechanism)
