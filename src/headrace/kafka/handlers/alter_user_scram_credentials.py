"""AlterUserScramCredentials (51), version 0: set or delete users' SCRAM credentials.

This broker does not authenticate clients, so credentials would have no use: setting one is UNSUPPORTED_SASL_MECHANISM,
where Kafka stores it, and deleting one RESOURCE_NOT_FOUND, as there is none. A user that appears twice is
DUPLICATE_RESOURCE. There is one result for each user.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import ALTER_CLUSTER
from headrace.kafka.unsecured import NO_USERS
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
    from kio.schema.alter_user_scram_credentials.v0.response import AlterUserScramCredentialsResponse

KEY = 51
_MECHANISMS = frozenset({1, 2})
"""SCRAM-SHA-256 and SCRAM-SHA-512."""


@handles(KEY, 0, 0, needs=(ALTER_CLUSTER,))
def alter_user_scram_credentials(
    ctx: Context, request: "AlterUserScramCredentialsRequest"
) -> "AlterUserScramCredentialsResponse":
    schema = ctx.schema
    counts = Counter([one.name for one in request.deletions] + [one.name for one in request.upsertions])
    deleted = {deletion.name for deletion in request.deletions if deletion.mechanism in _MECHANISMS}
    return make(
        schema.AlterUserScramCredentialsResponse,
        throttle_time=NO_THROTTLE,
        results=tuple(
            make(
                schema.AlterUserScramCredentialsResult,
                user=name,
                error_code=_refusal(count, is_deletion=name in deleted),
                error_message=NO_USERS,
            )
            for name, count in counts.items()
        ),
    )


def _refusal(count: int, *, is_deletion: bool) -> ErrorCode:
    if is_deletion:
        return ErrorCode.resource_not_found
    return ErrorCode.duplicate_resource if count > 1 else ErrorCode.unsupported_sasl_mechanism
