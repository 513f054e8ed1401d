from collections.abc import Iterator

import pytest

from . import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    if postgres.binaries() is None:
        pytest.skip("there is no PostgreSQL in /usr/lib/postgresql; on Debian: apt-get install postgresql")
    with postgres.server() as url:
        yield url
