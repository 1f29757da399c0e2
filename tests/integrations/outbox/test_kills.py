"""Short forms of `kills`: a writer is killed at every step, the broker and PostgreSQL at those around the commit."""

from pathlib import Path

import pytest

from firearrow.client import LocalBroker
from tests.integrations.outbox.kills import FACES, SETTINGS, STEPS, Scene
from tests.integrations.outbox.postgres import Postgres, lacking
from tests.interop.peers import Peer

pytestmark = pytest.mark.skipif(lacking() is not None, reason=f"PostgreSQL: {lacking()}")


def test_a_writer_is_killed_at_every_step(postgres: Postgres, every_site: Peer) -> None:
    with Scene(postgres, every_site, every_site.kind) as scene:  # type: ignore[arg-type]  # no case starts it again
        for number, step in enumerate(STEPS):
            scene.case(FACES[number % len(FACES)], step, "writer")
        assert scene.settle() == [6, 7], (
            "those that were committed: killed after the commit, and after the decision"
        )


def test_the_servers_are_killed_around_the_commit(tmp_path: Path) -> None:
    with (
        Postgres() as postgres,
        LocalBroker(tmp_path / "store", settings=SETTINGS) as broker,
        Scene(postgres, broker, "servers") as scene,
    ):
        for step in ("sent", "committing", "committed"):
            for victim in ("broker", "postgres"):
                scene.case("sync", step, victim)
        assert set(scene.settle()) >= {1, 5, 6}, (
            "the broker's death fails no SQL transaction after its half message"
        )
