"""AlterUserScramCredentials (51), version 0: set or delete users' SCRAM credentials.

- The client sends the salt and the salted password; only the keys that verify a password are derived from it and
  stored. A credential is in force on this broker when the answer is sent.
- There is one result for each user. One that appears twice is DUPLICATE_RESOURCE, or has the error of its first entry,
  deletions before upsertions; nothing of it changes.
- UNACCEPTABLE_CREDENTIAL: an empty name, fewer than 4,096 or more than 16,384 iterations, a salt or salted password
  of the wrong length. UNSUPPORTED_SASL_MECHANISM: neither SCRAM-SHA-256 nor SCRAM-SHA-512. RESOURCE_NOT_FOUND: the
  deletion of a credential that does not exist.
- UNSUPPORTED_VERSION while the cluster's feature level is too low to store users.
- Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each user.

Differences from Kafka: the users of a request are changed one after the other, not all at once. Kafka stores a salted
password of any length, though no password has it then.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER, not_authorized
from headrace.kafka.scram_mechanisms import MECHANISMS
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.security.sasl.scram import credential_from_salted

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from kio.schema.alter_user_scram_credentials.v0.response import AlterUserScramCredentialsResponse

KEY = 51
Outcome = tuple[ErrorCode, str | None]
Change = Callable[[], Awaitable[None]]
"""What is done for a user whose entry is valid."""
_TWICE: Outcome = (ErrorCode.duplicate_resource, "a user must appear only once in a request")


@handles(KEY, 0, 0, needs=(ALTER_CLUSTER,))
async def alter_user_scram_credentials(
    ctx: Context, request: "AlterUserScramCredentialsRequest"
) -> "AlterUserScramCredentialsResponse":
    outcomes: dict[str, Outcome] = {}
    if ctx.allows(ALTER_CLUSTER):
        changes = _valid_changes(ctx, request, outcomes)
        for name, change in changes.items():
            outcomes[name] = await _outcome(change)
    else:
        refusal = ErrorCode.cluster_authorization_failed, str(not_authorized(ALTER_CLUSTER))
        names = [each.name for each in request.deletions] + [each.name for each in request.upsertions]
        outcomes = dict.fromkeys(names, refusal)
    schema = ctx.schema
    return make(
        schema.AlterUserScramCredentialsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(
            make(schema.AlterUserScramCredentialsResult, user=name, error_code=error, error_message=message)
            for name, (error, message) in outcomes.items()
        ),
    )


def _valid_changes(
    ctx: Context, request: "AlterUserScramCredentialsRequest", outcomes: dict[str, Outcome]
) -> dict[str, Change]:
    """The changes to make, by user; errors go to `outcomes`."""
    changes: dict[str, Change] = {}
    entries: list[tuple[str, int, Callable[[], Change]]] = [
        *((each.name, each.mechanism, partial(_deletion, ctx, each)) for each in request.deletions),
        *((each.name, each.mechanism, partial(_upsertion, ctx, each)) for each in request.upsertions),
    ]
    for name, mechanism, check in entries:
        if name in outcomes:
            continue
        if changes.pop(name, None) is not None:
            outcomes[name] = _TWICE
        elif not name:
            outcomes[name] = ErrorCode.unacceptable_credential, "the name of a user must not be empty"
        elif mechanism not in MECHANISMS:
            outcomes[name] = ErrorCode.unsupported_sasl_mechanism, f"there is no SCRAM mechanism {mechanism}"
        else:
            try:
                changes[name] = check()
            except ValueError as problem:
                outcomes[name] = ErrorCode.unacceptable_credential, str(problem)
            except HeadraceError as failure:
                outcomes[name] = error_code(failure), error_message(failure)
    return changes


def _deletion(ctx: Context, deletion: "ScramCredentialDeletion") -> Change:
    access, mechanism = ctx.services.access, MECHANISMS[deletion.mechanism]
    access.check_credential(deletion.name, mechanism)
    return lambda: access.delete_credential(deletion.name, mechanism)


def _upsertion(ctx: Context, upsertion: "ScramCredentialUpsertion") -> Change:
    mechanism = MECHANISMS[upsertion.mechanism]
    credential = credential_from_salted(mechanism, upsertion.salt, upsertion.salted_password, int(upsertion.iterations))
    return lambda: ctx.services.access.put_credential(upsertion.name, credential)


async def _outcome(change: Change) -> Outcome:
    try:
        await change()
    except HeadraceError as failure:
        return error_code(failure), error_message(failure)
    return ErrorCode.none, None
