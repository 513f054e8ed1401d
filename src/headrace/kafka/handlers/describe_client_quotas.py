"""DescribeClientQuotas (48), versions 0-1: the quotas of users, client ids and addresses.

- A component matches a name, the default, or any name of an entity type; an entity must match all of them, and with
  `strict` have no other types. No components match everything.
- UNSUPPORTED_VERSION: an entity type that does not exist. INVALID_REQUEST: one that is empty or appears twice, an
  unknown match type, a name where there must be none or none where there must be one, an address together with users
  or client ids.
- Beyond Kafka: the entity type client-id-prefix.
- Permissions: DESCRIBE_CONFIGS on the cluster, else CLUSTER_AUTHORIZATION_FAILED.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import DESCRIBE_CLUSTER_CONFIGS
from headrace.model.errors import HeadraceError
from headrace.model.quotas import QuotaEntity, QuotaValues
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.quotas.alteration import EntityFilter, matching

if TYPE_CHECKING:
    from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
    from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse, EntryData

KEY = 48


@handles(KEY, 0, 1, needs=(DESCRIBE_CLUSTER_CONFIGS,))
def describe_client_quotas(ctx: Context, request: "DescribeClientQuotasRequest") -> "DescribeClientQuotasResponse":
    failure: HeadraceError | None = None
    found: dict[QuotaEntity, QuotaValues] = {}
    try:
        ctx.require(DESCRIBE_CLUSTER_CONFIGS)
        filters = [EntityFilter(each.entity_type, int(each.match_type), each.match) for each in request.components]
        found = matching(ctx.services.metadata.image.quotas, filters, strict=request.strict)
    except HeadraceError as error:
        failure = error
    return make(
        ctx.schema.DescribeClientQuotasResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if failure is None else error_code(failure),
        error_message=None if failure is None else error_message(failure),
        entries=None if failure is not None else tuple(_entry(ctx, *each) for each in found.items()),
    )


def _entry(ctx: Context, entity: QuotaEntity, values: QuotaValues) -> "EntryData":
    schema = ctx.schema
    return make(
        schema.EntryData,
        entity=tuple(make(schema.EntityData, entity_type=kind, entity_name=name) for kind, name in entity),
        values=tuple(make(schema.ValueData, key=key, value=value) for key, value in sorted(values.items())),
    )
