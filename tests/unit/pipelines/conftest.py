from collections.abc import Iterator

import pytest

from . import postgres


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if postgres.binaries() is None:
        pytest.skip("there is no PostgreSQL in /usr/lib/postgresql; on Debian: apt-get install postgresql")
    with postgres.server(tmp_path_factory.mktemp("postgres")) as url:
        yield url
