"""The settings of a subscription to the metrics of clients (KIP-714). There are no subscriptions here."""

from collections.abc import Mapping

from headrace.config.settings import Kind, Setting, table

_NOT_COLLECTED = "metrics of clients (KIP-714) are not collected"
_DOC = f"Only the default is accepted: {_NOT_COLLECTED}."

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = table(
    Setting("interval.ms", Kind.INT, 300_000, _DOC, has_effect=False, only_default=_NOT_COLLECTED),
    Setting("match", Kind.LIST, (), _DOC, has_effect=False, only_default=_NOT_COLLECTED),
    Setting("metrics", Kind.LIST, (), _DOC, has_effect=False, only_default=_NOT_COLLECTED),
)
