"""A PostgreSQL for the whole run; without it the tests that need it are skipped, and say why."""

from collections.abc import Iterator

import pytest

from tests.integrations.outbox.postgres import Postgres, lacking


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if (lack := lacking()) is not None:
        pytest.skip(f"PostgreSQL: {lack}")
    with Postgres() as server:
        yield server


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a database for sync engines."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'database'}?timeout=1"
    server: Postgres = request.getfixturevalue("postgres")
    return server.url
