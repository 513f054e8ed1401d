"""Makes up access keys."""

import secrets

from headrace.model.users import AccessKey

_ID_PREFIX = "HR"
_ID_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_ID_RANDOM = 18
_SECRET_BYTES = 30
"""40 characters of base64."""


def new_access_key(user: str, now_ms: int) -> AccessKey:
    """Return a key of a user with a random id and secret."""
    key_id = _ID_PREFIX + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_RANDOM))
    return AccessKey(key_id, user, secrets.token_urlsafe(_SECRET_BYTES), now_ms)
