"""AlterUserScramCredentials (51), version 0: set or delete users' SCRAM credentials.

- The client sends the salt and the salted password; only the keys that verify a password are derived from it and
  stored. A credential is in force on this broker when the answer is sent.
- There is one result for each user. One that appears twice is DUPLICATE_RESOURCE, and nothing of it changes.
- UNACCEPTABLE_CREDENTIAL: an empty name, fewer than 4,096 or more than 16,384 iterations, a salt or salted password
  of the wrong length. UNSUPPORTED_SASL_MECHANISM: neither SCRAM-SHA-256 nor SCRAM-SHA-512. RESOURCE_NOT_FOUND: the
  deletion of a credential that does not exist.
- UNSUPPORTED_VERSION while the cluster's feature level is too low to store users.
- Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each user.

Difference from Kafka: the users of a request are changed one after the other, not all at once.
"""

from collections import Counter
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
_DONE: Outcome = (ErrorCode.none, None)


@handles(KEY, 0, 0, needs=(ALTER_CLUSTER,))
async def alter_user_scram_credentials(
    ctx: Context, request: "AlterUserScramCredentialsRequest"
) -> "AlterUserScramCredentialsResponse":
    counts = Counter([one.name for one in request.deletions] + [one.name for one in request.upsertions])
    may_alter = ctx.allows(ALTER_CLUSTER)
    outcomes: dict[str, Outcome] = {}
    for name, count in counts.items():
        if not may_alter:
            outcomes[name] = ErrorCode.cluster_authorization_failed, str(not_authorized(ALTER_CLUSTER))
        elif count > 1:
            outcomes[name] = ErrorCode.duplicate_resource, "a user must appear only once in a request"
        elif not name:
            outcomes[name] = ErrorCode.unacceptable_credential, "the name of a user must not be empty"
    for deletion in request.deletions:
        if deletion.name not in outcomes:
            outcomes[deletion.name] = await _delete(ctx, deletion)
    for upsertion in request.upsertions:
        if upsertion.name not in outcomes:
            outcomes[upsertion.name] = await _put(ctx, upsertion)
    schema = ctx.schema
    return make(
        schema.AlterUserScramCredentialsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(
            make(schema.AlterUserScramCredentialsResult, user=name, error_code=error, error_message=message)
            for name, (error, message) in outcomes.items()
        ),
    )


async def _delete(ctx: Context, deletion: "ScramCredentialDeletion") -> Outcome:
    mechanism = MECHANISMS.get(deletion.mechanism)
    if mechanism is None:
        return _unknown_mechanism(deletion.mechanism)
    try:
        await ctx.services.access.delete_credential(deletion.name, mechanism)
    except HeadraceError as failure:
        return error_code(failure), error_message(failure)
    return _DONE


async def _put(ctx: Context, upsertion: "ScramCredentialUpsertion") -> Outcome:
    mechanism = MECHANISMS.get(upsertion.mechanism)
    if mechanism is None:
        return _unknown_mechanism(upsertion.mechanism)
    try:
        credential = credential_from_salted(
            mechanism, upsertion.salt, upsertion.salted_password, int(upsertion.iterations)
        )
        await ctx.services.access.put_credential(upsertion.name, credential)
    except ValueError as problem:
        return ErrorCode.unacceptable_credential, str(problem)
    except HeadraceError as failure:
        return error_code(failure), error_message(failure)
    return _DONE


def _unknown_mechanism(number: int) -> Outcome:
    return ErrorCode.unsupported_sasl_mechanism, f"there is no SCRAM mechanism {number}"
