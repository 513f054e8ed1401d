"""The metadata store's records of topics' data keys: `/data-keys/<topic id>`, as JSON."""

from uuid import UUID

import msgspec

from headrace.model.data_keys import TopicDataKeys, WrappedKey
from headrace.model.errors import StartupError

DATA_KEYS = "/data-keys/"


class WrappedKeyRecord(msgspec.Struct, frozen=True):
    version: int
    wrapped: bytes
    """Base64 in JSON."""
    master_key: str
    """The id of the master key that it is wrapped by."""
    created_ms: int


class DataKeysRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    versions: tuple[WrappedKeyRecord, ...]
    last_version: int
    shredded_ms: int | None = None


_encode = msgspec.json.Encoder(order="deterministic").encode
_decoder = msgspec.json.Decoder(DataKeysRecord)


def data_keys_key(topic_id: UUID) -> str:
    return DATA_KEYS + str(topic_id)


def topic_id_of(key: str) -> UUID:
    return UUID(key[len(DATA_KEYS) :])


def encode_data_keys(keys: TopicDataKeys) -> bytes:
    versions = tuple(WrappedKeyRecord(v.version, v.wrapped, v.master_key_id, v.created_ms) for v in keys.versions)
    return _encode(DataKeysRecord(versions, keys.last_version, keys.shredded_ms))


def decode_data_keys(key: str, value: bytes) -> TopicDataKeys:
    try:
        record = _decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StartupError(f"the metadata under {key} cannot be decoded; was it edited by hand? {error}") from None
    versions = tuple(WrappedKey(v.version, v.wrapped, v.master_key, v.created_ms) for v in record.versions)
    return TopicDataKeys(versions, record.last_version, record.shredded_ms)
