"""Schemas are loaded in the background after the start."""

import sys
from itertools import groupby

import pytest

from headrace.kafka import preload
from headrace.kafka.dispatch import APIS

PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, float]]:
    """API, version, and the interval at which threads take turns meanwhile."""
    result: list[tuple[int, int, float]] = []
    monkeypatch.setattr(preload, "prepare", lambda key, version: result.append((key, version, sys.getswitchinterval())))
    one = preload.Preload()
    one.start()
    one._thread.join()
    one.stop()
    return result


def test_what_every_client_needs_comes_first(loaded: list[tuple[int, int, float]]) -> None:
    assert {(key, version) for key, version, _ in loaded} == {
        (api.key, version)
        for api in APIS.values()
        for version in range(api.min_served, api.max_version + 1)
        if api.key != PRODUCE  # encoded by hand
    }
    (first, of_every_client), (second, _) = (
        (needed, [each[:2] for each in group])
        for needed, group in groupby(loaded, lambda each: each[0] in preload._FIRST)
    )
    assert (first, second) == (True, False)
    assert {FETCH, METADATA} <= {key for key, _ in of_every_client}
    assert CREATE_TOPICS not in {key for key, _ in of_every_client}
    assert of_every_client[0] == (FETCH, APIS[FETCH].max_version)


def test_the_event_loop_gets_the_interpreter_back_sooner_meanwhile(
    loaded: list[tuple[int, int, float]],
) -> None:
    assert max(interval_s for _, _, interval_s in loaded) == pytest.approx(0.0001)
    assert sys.getswitchinterval() > 0.0002
