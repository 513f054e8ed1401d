"""AES-256-GCM over the records of a batch.

    offset  size  field
         0     1  format, 1
         1     4  version of the topic's data key
         5    16  salt
        21    12  nonce
        33     n  the records, encrypted
      33+n    16  tag

A batch is encrypted by a key that HKDF-SHA-256 derives from the data key and the salt. Each `BatchCipher` draws its own
random salt, and another one after 2^32 batches: so the limit of random 96-bit nonces under one key is counted where the
key is used, and holds however many brokers and processes share the data key.
"""

import os
from collections.abc import Callable
from struct import Struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headrace.model.errors import DataKeyMissing, NotAuthentic, TopicShredded
from headrace.security.encryption.data_keys import UnwrappedKeys
from headrace.security.encryption.master_key import KEY_BYTES

BATCHES_PER_SALT = 2**32

_FORMAT = 1
_PREFIX = Struct(">BI16s")
_TAG_BYTES = 16
_SALT_BYTES = 16
_INFO = b"headrace batch encryption 1"
_KNOWN_KEYS = 256

KEY_PREFIX_BYTES = _PREFIX.size
"""Format, version and salt: batches that begin with the same ones have the same key."""
NONCE_BYTES = 12
PREFIX_BYTES = KEY_PREFIX_BYTES + NONCE_BYTES
OVERHEAD_BYTES = PREFIX_BYTES + _TAG_BYTES

CHANGED = (InvalidTag, ValueError)
"""Raised by the cipher for anything but what it has encrypted."""

Buffer = bytes | bytearray | memoryview


class BatchCipher:
    """Encrypts and decrypts with the data keys of one topic. Safe in any thread, except `encrypt`: in one at a time."""

    __slots__ = ("_batches_left", "_batches_per_salt", "_key", "_keys", "_prefix", "_random", "_where", "known")

    def __init__(
        self,
        keys: UnwrappedKeys,
        where: str,
        *,
        random: Callable[[int], bytes] = os.urandom,
        batches_per_salt: int = BATCHES_PER_SALT,
    ) -> None:
        """`where` names the topic, for errors."""
        self._keys = keys
        self._where = where
        self._random = random
        self._batches_per_salt = batches_per_salt
        self.known: dict[bytes, AESGCM] = {}
        """Derived keys, by format, version and salt; `derive` adds others."""
        self._prefix = b""
        self._key: AESGCM | None = None
        self._batches_left = 0

    def encrypt(self, records: Buffer, associated: bytes) -> tuple[bytes, bytes]:
        """The prefix, and the encrypted records with the tag. Raises `DataKeyMissing` or `TopicShredded`.

        `decrypt` requires the same associated data.
        """
        if not self._batches_left or self._key is None:
            self._draw_salt()
            assert self._key is not None
        self._batches_left -= 1
        nonce = self._random(NONCE_BYTES)
        return self._prefix + nonce, self._key.encrypt(nonce, records, associated)

    def decrypt(self, prefix: bytes, encrypted: Buffer, associated: bytes) -> bytes:
        """The records of a batch.

        Raises `DataKeyMissing` or `TopicShredded`, and `NotAuthentic` if anything was changed.
        """
        key = self.known.get(prefix[:KEY_PREFIX_BYTES]) or self.derive(prefix)
        try:
            return key.decrypt(prefix[KEY_PREFIX_BYTES:], encrypted, associated)
        except CHANGED:
            raise self.not_authentic() from None

    def not_authentic(self) -> NotAuthentic:
        """The error for a batch whose decryption has raised one of `CHANGED`."""
        return NotAuthentic(
            f"a batch of {self._where} cannot be decrypted: it was changed on disk, or belongs to another place"
        )

    def _draw_salt(self) -> None:
        if self._keys.current is None:
            if self._keys.is_shredded:
                raise TopicShredded(
                    f"{self._where} was shredded: set encryption.at.rest=true to write with a new key, or delete it"
                )
            raise DataKeyMissing(f"{self._where} {self._keys.problem}")
        self._prefix = _PREFIX.pack(_FORMAT, self._keys.current, self._random(_SALT_BYTES))
        self._key = self.derive(self._prefix)
        self._batches_left = self._batches_per_salt

    def derive(self, prefix: bytes) -> AESGCM:
        """The key of the batches with this prefix, derived once for all of them. Raises as `decrypt` does."""
        if len(prefix) < _PREFIX.size or prefix[0] != _FORMAT:
            raise NotAuthentic(f"a batch of {self._where} is not encrypted in a format that is known here")
        _, version, salt = _PREFIX.unpack_from(prefix)
        data_key = self._keys.by_version.get(version)
        if data_key is None and version <= self._keys.destroyed:
            raise TopicShredded(f"{self._where} was shredded: what was written before that cannot be read any more")
        if data_key is None:
            problem = self._keys.problem or f"has no data key of version {version}: restore the metadata store"
            raise DataKeyMissing(f"{self._where} {problem}")
        key = AESGCM(HKDF(SHA256(), KEY_BYTES, salt, _INFO).derive(data_key))
        if len(self.known) >= _KNOWN_KEYS:
            self.known.clear()
        self.known[prefix[:KEY_PREFIX_BYTES]] = key
        return key
