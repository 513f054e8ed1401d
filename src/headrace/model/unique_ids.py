"""Ids of messages and requests: UUIDs of version 4 from a generator in this process, because a system call for each
would dominate the cost of a request. They are distinct, not secret.
"""

import re
from random import Random

_random_bits = Random().getrandbits
_CHOSEN = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


def new_id() -> str:
    # 120 random bits: of the version and the variant, which are a digit each, two bits could be random, too.
    digits = _random_bits(120).to_bytes(15, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[12:15]}-8{digits[15:18]}-{digits[18:]}"


def is_request_id(given: bytes) -> bool:
    """Whether an id that a client or a proxy chose may be used: at most 64 letters, digits and `._:-`."""
    return _CHOSEN.fullmatch(given) is not None
