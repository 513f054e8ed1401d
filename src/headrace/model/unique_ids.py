"""Ids of messages and requests: UUIDs of version 4 from a generator in this process, because a system call for each
would dominate the cost of a request. They are distinct, not secret.
"""

import re
from random import Random

_random = Random()
_CHOSEN = re.compile(rb"[A-Za-z0-9._:-]{1,64}")


def new_id() -> str:
    bits = _random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | (0x4 << 76 | 0x2 << 62)
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_request_id(given: bytes) -> bool:
    """Whether an id that a client or a proxy chose may be used: at most 64 letters, digits and `._:-`."""
    return _CHOSEN.fullmatch(given) is not None
