"""Every world that a test makes ends with the test."""

from collections.abc import Iterator

import pytest

from headrace.testing.sim.world import World


@pytest.fixture(autouse=True)
def close_worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[World] = []
    make = World.__init__

    def make_and_note(world: World, seed: int) -> None:
        make(world, seed)
        made.append(world)

    monkeypatch.setattr(World, "__init__", make_and_note)
    yield
    for world in made:
        world.close()
