"""Users and their SCRAM credentials: listed, set and deleted. A password is salted here and never sent."""

from secrets import token_bytes
from types import ModuleType
from typing import Any, NamedTuple

from headrace.protocol.codec import make
from headrace.security.sasl.mechanism import SCRAM_SHA_256, SCRAM_SHA_512
from headrace.security.sasl.scram import DEFAULT_ITERATIONS, SALT_BYTES, salted_password
from headrace.wire.errors import check
from headrace.wire.router import LeaderRouter

_DESCRIBE, _ALTER = 50, 51
MECHANISM_NUMBERS = {SCRAM_SHA_256: 1, SCRAM_SHA_512: 2}
_NAMES = {number: name for name, number in MECHANISM_NUMBERS.items()}


class CredentialInfo(NamedTuple):
    mechanism: str
    iterations: int


def list_users(router: LeaderRouter) -> dict[str, list[CredentialInfo]]:
    """The users with SCRAM credentials, by name."""

    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeUserScramCredentialsRequest, users=None)

    def attempt() -> dict[str, list[CredentialInfo]]:
        answer = router.any_broker(lambda connection: connection.call(_DESCRIBE, 0, build))
        check("listing the users", answer.error_code, answer.error_message)
        return {
            str(each.user): sorted(
                CredentialInfo(_NAMES.get(int(info.mechanism), "unknown"), int(info.iterations))
                for info in each.credential_infos
            )
            for each in sorted(answer.results, key=lambda each: str(each.user))
            if not each.error_code
        }

    return router.patiently(attempt)


def set_password(
    router: LeaderRouter, user: str, password: str, mechanism: str, iterations: int = DEFAULT_ITERATIONS
) -> None:
    """Set the credential of a user for one mechanism; creates the user."""
    salt = token_bytes(SALT_BYTES)
    salted = salted_password(password, mechanism, salt, iterations)

    def build(schema: ModuleType) -> Any:
        upsertion: Any = make(
            schema.ScramCredentialUpsertion,
            name=user,
            mechanism=MECHANISM_NUMBERS[mechanism],
            iterations=iterations,
            salt=salt,
            salted_password=salted,
        )
        return make(schema.AlterUserScramCredentialsRequest, deletions=(), upsertions=(upsertion,))

    _alter(router, f"setting the password of {user}", build)


def delete_credential(router: LeaderRouter, user: str, mechanism: str) -> None:
    """Delete the credential of a user for one mechanism; with the last one, the user."""

    def build(schema: ModuleType) -> Any:
        deletion: Any = make(schema.ScramCredentialDeletion, name=user, mechanism=MECHANISM_NUMBERS[mechanism])
        return make(schema.AlterUserScramCredentialsRequest, deletions=(deletion,), upsertions=())

    _alter(router, f"deleting the credential of {user} for {mechanism}", build)


def _alter(router: LeaderRouter, what: str, build: Any) -> None:
    def attempt() -> None:
        with router.using(router.controller()) as connection:
            (result,) = connection.call(_ALTER, 0, build).results
        check(what, result.error_code, result.error_message)

    router.patiently(attempt)
