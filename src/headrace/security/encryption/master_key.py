"""Master keys: they wrap the data keys of topics, and encrypt nothing else.

A broker has one current master key, which wraps new data keys, and any number of former ones, which only unwrap. A key
is named by its id, a hash of it, so that a missing key can be named without revealing it.
"""

import os
from base64 import b64decode
from binascii import Error as Base64Error
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headrace.model.errors import SettingsError

KEY_BYTES = 32
_NONCE_BYTES = 12
_ID_CHARACTERS = 16


class KeyNotUnwrapped(Exception):
    """A wrapped key was changed, or is not of this topic and version."""


class MasterKey:
    """One master key."""

    __slots__ = ("_aes", "key_id")

    def __init__(self, key: bytes) -> None:
        self.key_id = sha256(b"headrace master key id\0" + key).hexdigest()[:_ID_CHARACTERS]
        self._aes = AESGCM(key)

    def __repr__(self) -> str:
        return f"<MasterKey {self.key_id}>"

    def wrap(self, key: bytes, context: bytes) -> bytes:
        """Encrypt a data key for storage; only `unwrap` with the same context returns it."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._aes.encrypt(nonce, key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        try:
            return self._aes.decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise KeyNotUnwrapped from None


class MasterKeys(NamedTuple):
    """The master keys of a broker."""

    current: MasterKey
    former: tuple[MasterKey, ...] = ()

    def get(self, key_id: str) -> MasterKey | None:
        return next((key for key in (self.current, *self.former) if key.key_id == key_id), None)

    @property
    def ids(self) -> str:
        return ", ".join(key.key_id for key in (self.current, *self.former))


def parse_master_keys(text: str, source: str) -> MasterKeys:
    """The keys in `text`, the current one first, separated by commas or white space. Errors do not reveal them."""
    keys = [_parse(word, number, source) for number, word in enumerate(text.replace(",", " ").split(), 1)]
    if not keys:
        raise SettingsError(f"{source} has no master key: write base64 of {KEY_BYTES} bytes, as `openssl rand -base64 "
                            f"{KEY_BYTES}` prints")  # fmt: skip
    return MasterKeys(keys[0], tuple(keys[1:]))


def _parse(word: str, number: int, source: str) -> MasterKey:
    try:
        key = b64decode(word, validate=True)
    except (Base64Error, ValueError):
        raise SettingsError(f"{source}: master key {number} is not base64") from None
    if len(key) != KEY_BYTES:
        raise SettingsError(f"{source}: master key {number} is base64 of {len(key)} bytes, not of {KEY_BYTES}")
    return MasterKey(key)
