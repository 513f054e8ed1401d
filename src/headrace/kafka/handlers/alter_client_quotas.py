"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, clients and addresses.

Quotas are not supported, and one that is accepted but not enforced would be a trap: setting one is INVALID_REQUEST with
that reason, where Kafka stores it. Removing one that does not exist succeeds, as in Kafka.

Permissions: ALTER_CONFIGS on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each entry.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.permissions import ALTER_CLUSTER_CONFIGS, not_authorized
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_client_quotas.v1.request import EntryData as RequestEntry
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntryData

KEY = 49


@handles(KEY, 0, 1, needs=(ALTER_CLUSTER_CONFIGS,))
def alter_client_quotas(ctx: Context, request: "AlterClientQuotasRequest") -> "AlterClientQuotasResponse":
    may_alter = ctx.allows(ALTER_CLUSTER_CONFIGS)
    return make(
        ctx.schema.AlterClientQuotasResponse,
        throttle_time=NO_THROTTLE,
        entries=tuple(_answer(ctx, entry, may_alter=may_alter) for entry in request.entries),
    )


def _answer(ctx: Context, entry: "RequestEntry", *, may_alter: bool) -> "EntryData":
    schema = ctx.schema
    set_keys = [op.key for op in entry.ops if not op.remove]
    error, message = ErrorCode.none, None
    if not may_alter:
        error = ErrorCode.cluster_authorization_failed
        message = str(not_authorized(ALTER_CLUSTER_CONFIGS))
    elif set_keys:
        error, message = ErrorCode.invalid_request, f"this broker enforces no quotas: {', '.join(set_keys)}"
    return make(
        schema.EntryData,
        error_code=error,
        error_message=message,
        entity=tuple(
            make(schema.EntityData, entity_type=entity.entity_type, entity_name=entity.entity_name)
            for entity in entry.entity
        ),
    )
