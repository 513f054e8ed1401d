"""The settings of a client metrics subscription (KIP-714), which is not supported: only defaults are accepted."""

from collections.abc import Mapping

from headrace.config.settings import Kind, Setting, table

_NOT_COLLECTED = "client metrics (KIP-714) are not collected"
_DOC = f"Only the default is accepted: {_NOT_COLLECTED}."

CLIENT_METRICS_SETTINGS: Mapping[str, Setting] = table(
    Setting("interval.ms", Kind.INT, 300_000, _DOC, has_effect=False, only_default=_NOT_COLLECTED),
    Setting("match", Kind.LIST, (), _DOC, has_effect=False, only_default=_NOT_COLLECTED),
    Setting("metrics", Kind.LIST, (), _DOC, has_effect=False, only_default=_NOT_COLLECTED),
)
