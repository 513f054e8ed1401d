"""DescribeConfigs (32), versions 1-4: the effective settings of topics, of groups, of this broker and its loggers.

- Every setting is listed, defaults included, with its source; from v3 on with its type and, if requested, its doc.
- A list of names selects; null means all, as does an empty list, for old clients.
- Confluent's and Redpanda's names of settings (`config/schema_aliases.py`) are shown if they are asked for.
- Synonyms, if requested, are all sources that set the value, in order of precedence.
- Broker "" stands for the dynamic settings of all brokers; another broker's id is INVALID_REQUEST: ask that broker.
- Secrets are null and marked as sensitive.
- A client metrics subscription that does not exist has the defaults.
- The doc of a Kafka setting without effect here says so.
- Permissions: DESCRIBE_CONFIGS on the topic or on the group, else TOPIC_ or GROUP_AUTHORIZATION_FAILED; on the cluster
  for all others, else CLUSTER_AUTHORIZATION_FAILED. A request for the one setting `http.listeners` of a broker needs
  none: clients find queues by it.
"""

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.cluster.topics import check_name
from headrace.kafka.config_changes import existing_topic, named_broker, named_group, named_subscription, this_broker
from headrace.kafka.config_entries import (
    ConfigEntry,
    ConfigResourceType,
    alias_entries,
    all_brokers_entries,
    broker_entries,
    client_metrics_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from headrace.kafka.config_permissions import require_describe
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_GROUP_CONFIGS, DESCRIBE_TOPIC_CONFIGS
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
    from kio.schema.describe_configs.v4.response import (
        DescribeConfigsResourceResult,
        DescribeConfigsResponse,
        DescribeConfigsResult,
    )

KEY = 32


@handles(KEY, 1, 4, needs=(DESCRIBE_CLUSTER_CONFIGS, DESCRIBE_TOPIC_CONFIGS, DESCRIBE_GROUP_CONFIGS))
def describe_configs(ctx: Context, request: "DescribeConfigsRequest") -> "DescribeConfigsResponse":
    schema = ctx.schema
    results: list[DescribeConfigsResult] = []
    for resource in request.resources:
        error, message = ErrorCode.none, None
        configs: tuple[DescribeConfigsResourceResult, ...] = ()
        try:
            wanted = frozenset(resource.configuration_keys or ())
            require_describe(ctx, resource.resource_type, resource.resource_name, wanted)
            configs = tuple(
                _entry(ctx, request, entry)
                for entry in _entries(ctx, resource)
                if not wanted or entry.setting.name in wanted
            )
        except HeadraceError as failure:
            error, message = error_code(failure), error_message(failure)
        results.append(
            make(
                schema.DescribeConfigsResult,
                error_code=error,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=configs,
            )
        )
    return make(schema.DescribeConfigsResponse, throttle_time=NO_THROTTLE, results=tuple(results))


def _entries(ctx: Context, resource: "DescribeConfigsResource") -> Iterable[ConfigEntry]:
    metadata, kind = ctx.services.metadata, int(resource.resource_type)
    if kind == ConfigResourceType.TOPIC:
        topic = existing_topic(metadata, check_name(resource.resource_name))
        return chain(topic_entries(metadata, topic), alias_entries(metadata, topic, resource.configuration_keys or ()))
    if kind == ConfigResourceType.GROUP:
        return group_entries(metadata, named_group(resource.resource_name))
    if kind == ConfigResourceType.BROKER_LOGGER:
        this_broker(metadata, resource.resource_name)
        return logger_entries()
    if kind == ConfigResourceType.CLIENT_METRICS:
        return client_metrics_entries(metadata, named_subscription(resource.resource_name))
    if named_broker(metadata, resource.resource_type, resource.resource_name) is None:
        return all_brokers_entries(metadata)
    return broker_entries(metadata, ctx.services.http_listeners)


def _entry(ctx: Context, request: "DescribeConfigsRequest", entry: ConfigEntry) -> "DescribeConfigsResourceResult":
    schema = ctx.schema
    synonyms = entry.synonyms if request.include_synonyms else ()
    return make(
        schema.DescribeConfigsResourceResult,
        name=entry.setting.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            make(schema.DescribeConfigsSynonym, name=synonym.name, value=synonym.value, source=int(synonym.source))
            for synonym in synonyms
        ),
        config_type=entry.setting.kind.value,
        documentation=entry.setting.doc if getattr(request, "include_documentation", False) else None,
    )
