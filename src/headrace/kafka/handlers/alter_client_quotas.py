"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and addresses.

- The quotas of one entity are changed together or not at all, and are in force on this broker when the answer is sent,
  on the others as soon as they see the change in the metadata store.
- INVALID_REQUEST: an unknown entity type, an empty name, an address together with a user or client id, an unknown
  quota, one that appears twice, a value that is not above 0 or not whole where it must be.
- An entity that appears twice in a request is INVALID_REQUEST, and nothing of it changes; Kafka makes the first change.
- validate_only checks everything and changes nothing.
- Removing a quota that does not exist succeeds, as in Kafka.
- Beyond Kafka: the entity type client-id-prefix, alone or with a user. An address must be one: names of hosts are not
  resolved.
- UNSUPPORTED_VERSION while the cluster's feature level is too low to store quotas.
- Permissions: ALTER_CONFIGS on the cluster, else CLUSTER_AUTHORIZATION_FAILED for each entry.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.cluster.quota_changes import QuotaChanges
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER_CONFIGS, not_authorized
from headrace.model.errors import HeadraceError, InvalidQuota
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.quotas.alteration import checked_entity

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
    from kio.schema.alter_client_quotas.v1.request import EntryData as RequestEntry
    from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse, EntryData

KEY = 49


@handles(KEY, 0, 1, needs=(ALTER_CLUSTER_CONFIGS,))
async def alter_client_quotas(ctx: Context, request: "AlterClientQuotasRequest") -> "AlterClientQuotasResponse":
    may_alter = ctx.allows(ALTER_CLUSTER_CONFIGS)
    names = [_names(entry) for entry in request.entries]
    counts = Counter(names)
    answers: list[EntryData] = []
    for entry, entity_names in zip(request.entries, names, strict=True):
        failure: HeadraceError | None = None
        try:
            if not may_alter:
                raise not_authorized(ALTER_CLUSTER_CONFIGS)
            if counts[entity_names] > 1:
                raise InvalidQuota("an entity must appear only once in a request")
            await _alter(ctx, entry, validate_only=request.validate_only)
        except HeadraceError as error:
            failure = error
        answers.append(_answer(ctx, entry, failure))
    return make(ctx.schema.AlterClientQuotasResponse, throttle_time=NO_THROTTLE, entries=tuple(answers))


def _names(entry: "RequestEntry") -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


async def _alter(ctx: Context, entry: "RequestEntry", *, validate_only: bool) -> None:
    entity = checked_entity((each.entity_type, each.entity_name) for each in entry.entity)
    changes = [(op.key, None if op.remove else float(op.value)) for op in entry.ops]
    await QuotaChanges(ctx.services.metadata).alter(entity, changes, validate_only=validate_only)


def _answer(ctx: Context, entry: "RequestEntry", failure: HeadraceError | None) -> "EntryData":
    schema = ctx.schema
    return make(
        schema.EntryData,
        error_code=ErrorCode.none if failure is None else error_code(failure),
        error_message=None if failure is None else error_message(failure),
        entity=tuple(
            make(schema.EntityData, entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ),
    )
