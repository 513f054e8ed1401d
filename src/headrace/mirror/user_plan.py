"""Which users a link creates, changes and removes here so that they log in with their passwords of the source. Pure.

What is copied is what verifies a password (SCRAM), never a password. A user belongs to the link if the link has brought
it and it was not changed here since; others are left alone. A super user of this cluster is never brought: the
people who run the source would be super users here.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from headrace.model.links import MAX_TEXT_CHARS
from headrace.model.users import ANONYMOUS, ScramCredential, User, principal_of
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from headrace.security.sasl.scram import MAX_ITERATIONS, MAX_SALT_BYTES, MIN_ITERATIONS

KEY_BYTES = {SCRAM_SHA_256: 32, SCRAM_SHA_512: 64}
"""The length of the keys of each mechanism."""
_MAX_SHOWN_CHARS = 100

Credentials = Mapping[str, ScramCredential]


class SourceVerifier(msgspec.Struct, array_like=True, frozen=True):
    user: str
    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"SourceVerifier({self.user!r}, {self.mechanism!r})"


class SourceVerifiers(msgspec.Struct, array_like=True, frozen=True):
    digest: str
    verifiers: list[SourceVerifier] | None = None
    """None if the digest is the one that was known."""


@dataclass(frozen=True, slots=True)
class SourceUsers:
    """The users of a source cluster that have credentials."""

    users: Mapping[str, Credentials]
    unusable: tuple[str, ...] = ()
    """Why users of the source cannot be stored here, each in words."""


@dataclass(frozen=True, slots=True)
class UserPlan:
    changes: Mapping[str, Credentials | None]
    """The credentials of users; None for one that is removed."""
    retained: tuple[str, ...] = ()
    """Users that exist here, were not brought by the link, and have other credentials at the source."""
    protected: tuple[str, ...] = ()
    """Users of the source that are super users here."""


def read_verifiers(found: Iterable[SourceVerifier]) -> SourceUsers:
    """The users of an answer, without those that are not possible here."""
    users: dict[str, dict[str, ScramCredential]] = {}
    unusable: list[str] = []
    for each in found:
        if problem := _problem_with(each):
            unusable.append(f"the user {each.user[:_MAX_SHOWN_CHARS]!r} {problem}")
            continue
        credential = ScramCredential(each.mechanism, each.salt, each.iterations, each.stored_key, each.server_key)
        users.setdefault(each.user, {})[each.mechanism] = credential
    return SourceUsers(users, tuple(unusable))


def planned_users(
    source: SourceUsers, present: Mapping[str, User], brought: Collection[str], super_users: Collection[str]
) -> UserPlan:
    """The changes. `brought` are the users here that belong to the link."""
    changes: dict[str, Credentials | None] = {}
    retained: list[str] = []
    protected: list[str] = []
    for name, wanted in sorted(source.users.items()):
        user = present.get(name)
        if user is not None and dict(user.credentials) == dict(wanted):
            continue
        if principal_of(name) in super_users:
            protected.append(name)
        elif user is None or name in brought:
            changes[name] = wanted
        else:
            retained.append(name)
    gone = sorted(name for name in brought if name not in source.users and name in present)
    return UserPlan({**dict.fromkeys(gone), **changes}, tuple(retained), tuple(protected))


def problem_with_users(source: SourceUsers, plan: UserPlan) -> str:
    """What of the source is not in force here; empty if everything is."""
    words: list[str] = []
    if plan.protected:
        words.append(
            f"{len(plan.protected)} users of the source are super users here and are never copied, for example "
            f"{plan.protected[0][:_MAX_SHOWN_CHARS]}"
        )
    if plan.retained:
        words.append(
            f"{len(plan.retained)} users exist here, were not brought by the link and have another password at the "
            f"source, for example {plan.retained[0][:_MAX_SHOWN_CHARS]}: delete them here to follow the source"
        )
    if source.unusable:
        words.append(
            f"{len(source.unusable)} credentials of the source cannot be stored here, for example: {source.unusable[0]}"
        )
    return "; ".join(words)


def _problem_with(found: SourceVerifier) -> str:
    size = KEY_BYTES.get(found.mechanism)
    if not 0 < len(found.user) <= MAX_TEXT_CHARS or not found.user.isprintable():
        return "has a name that is not possible here"
    if principal_of(found.user) == ANONYMOUS:
        return "has the name of clients without a login"
    if size is None:
        return "has credentials of an unknown mechanism"
    if not MIN_ITERATIONS <= found.iterations <= MAX_ITERATIONS:
        return f"has {found.iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are possible"
    if not 0 < len(found.salt) <= MAX_SALT_BYTES or {len(found.stored_key), len(found.server_key)} != {size}:
        return "has a salt or keys of a wrong length"
    return ""
