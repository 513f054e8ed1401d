"""The metadata store's schema of client quotas.

    /quotas/<digest>             an entity with its quotas; the digest is that of the entity, whose names may have
                                 any characters

They need feature level `QUOTAS_LEVEL`: older brokers would not hold clients to them.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from headrace.cluster.store import Change
from headrace.model.errors import StartupError
from headrace.model.quotas import ClusterQuotas, QuotaEntity, QuotaValues

QUOTAS = "/quotas/"


class QuotaRecord(msgspec.Struct, frozen=True):
    entity: tuple[tuple[str, str | None], ...]
    quotas: dict[str, float]


_encode = msgspec.json.Encoder(order="deterministic").encode
_decoder = msgspec.json.Decoder(QuotaRecord)


def quota_key(entity: QuotaEntity) -> str:
    return QUOTAS + sha256(_encode(entity)).hexdigest()[:32]


def encode_quotas(entity: QuotaEntity, values: QuotaValues) -> bytes:
    return _encode(QuotaRecord(entity, dict(values)))


def apply_quotas(quotas: ClusterQuotas, changes: Iterable[Change]) -> ClusterQuotas:
    """The quotas with these changes, whose keys begin with `QUOTAS`; the same object without changes."""
    changes = tuple(changes)
    if not changes:
        return quotas
    by_key = {quota_key(entity): (entity, values) for entity, values in quotas.items()}
    for change in changes:
        if change.value is None:
            by_key.pop(change.key, None)
        else:
            by_key[change.key] = _decode(change.key, change.value)
    return dict(by_key.values())


def _decode(key: str, value: bytes) -> tuple[QuotaEntity, QuotaValues]:
    try:
        record = _decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StartupError(f"the metadata under {key} cannot be decoded; was it edited by hand? {error}") from None
    return record.entity, record.quotas
