"""Builds the limits of groups from the settings of the broker and the overrides of single groups."""

from collections.abc import Callable

from headrace.config.broker import BrokerSettings
from headrace.config.group import GroupSettings
from headrace.groups.group import ConsumerLimits, GroupLimits, ShareMemberLimits, StreamsLimits


def limits_from(settings: BrokerSettings, of_group: Callable[[str], GroupSettings]) -> GroupLimits:
    return GroupLimits(
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        consumer=ConsumerLimits(
            session_timeout_ms=settings.group_consumer_session_timeout_ms,
            own_session_timeout_ms=lambda group_id: of_group(group_id).consumer_session_timeout_ms,
            max_size=settings.group_consumer_max_size,
            assignors=settings.group_consumer_assignors,
            can_upgrade=settings.group_consumer_migration_policy in ("bidirectional", "upgrade"),
            can_downgrade=settings.group_consumer_migration_policy in ("bidirectional", "downgrade"),
        ),
        share=ShareMemberLimits(
            session_timeout_of=lambda group_id: of_group(group_id).share_session_timeout_ms,
            max_size=settings.group_share_max_size,
        ),
        streams=StreamsLimits(
            session_timeout_of=lambda group_id: of_group(group_id).streams_session_timeout_ms,
            standby_replicas_of=lambda group_id: of_group(group_id).streams_num_standby_replicas,
            initial_delay_of=lambda group_id: of_group(group_id).streams_initial_rebalance_delay_ms,
            max_size=settings.group_streams_max_size,
        ),
    )
