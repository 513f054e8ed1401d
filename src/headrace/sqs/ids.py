"""Ids of messages and requests: UUIDs of version 4 from a generator in this process, because a system call for each
would dominate the cost of a request. They are distinct, not secret.
"""

from random import Random

_random = Random()


def new_id() -> str:
    bits = _random.getrandbits(128) & ~(0xF << 76 | 0x3 << 62) | (0x4 << 76 | 0x2 << 62)
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
