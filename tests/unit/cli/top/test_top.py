"""`headrace top`: what keys do, and what is shown for given figures."""

from typing import Any
from urllib.parse import parse_qs

import pytest
from rich.console import Console

from headrace.cli.errors import BadArgument
from headrace.cli.top.figures import TopFigures
from headrace.cli.top.keyboard import keys_of
from headrace.cli.top.screen import picture
from headrace.cli.top.state import TopState
from headrace.cli.top.views import NAMES, VIEWS

OVERVIEW: dict[str, Any] = {
    "at_ms": 1,
    "health": {"status": "ok", "sentence": "Everything is fine.", "problems": []},
    "totals": None,
    "worst_groups": [],
    "queues": [],
    "brokers": [],
    "pipelines": [],
}
GROUP = {
    "group": "billing[red]",
    "type": "classic",
    "state": "Stable",
    "members": 2,
    "topic_count": 1,
    "lag_messages": 1234,
    "lag_seconds": 75.0,
    "trend": "rising",
    "coordinator": 1,
}


def shown(figures: TopFigures | None, state: TopState, error: str = "", *, is_live: bool = False) -> str:
    console = Console(width=160, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(picture(figures, state, error, is_live=is_live))
    return captured.get()


class TestKeys:
    def test_views_by_number_and_in_turn(self) -> None:
        state = TopState()
        assert state.press("3")
        assert state.name == "groups"
        for name in (*NAMES[3:], *NAMES[:3]):
            assert state.press("tab")
            assert state.name == name
        assert not state.press("9")
        assert not state.press("x")

    def test_sorting_goes_through_the_columns(self) -> None:
        state = TopState("groups")
        assert state.sorted_by == "lag_seconds"
        state.press("s")
        assert (state.sorted_by, state.is_ascending) == ("coordinator", False)
        state.press("s")
        assert (state.sorted_by, state.is_ascending) == ("group", True)
        state.press("r")
        assert not state.is_ascending
        state.press("2")
        assert state.sorted_by == "bytes_in_per_s"
        assert not TopState().press("s")

    def test_a_search_is_typed(self) -> None:
        state = TopState("topics", page=3)
        for key in ("/", "o", "q", "1", "backspace", "backspace", "r"):
            assert not state.press(key)
        assert (state.typed, state.search, state.name, state.is_over) == ("or", "", "topics", False)
        assert state.press("enter")
        assert (state.typed, state.search, state.page) == (None, "or", 1)
        state.press("/")
        state.press("escape")
        assert (state.typed, state.search) == (None, "or")
        state.press("escape")
        assert state.search == ""

    def test_pages_and_the_end(self) -> None:
        state = TopState("topics")
        state.press("page down")
        assert parse_qs(state.query(20)) == {
            "sort": ["bytes_in_per_s"],
            "order": ["desc"],
            "page": ["2"],
            "per_page": ["20"],
        }
        state.press("page up")
        state.press("page up")
        assert state.page == 1
        state.press("q")
        assert state.is_over

    def test_what_a_terminal_sends(self) -> None:
        assert keys_of("q") == ["q"]
        assert keys_of("ab\r") == ["a", "b", "enter"]
        assert keys_of("\x1b[6~") == ["page down"]
        assert keys_of("\x1b") == ["escape"]
        assert keys_of("\x1bs\x1b[6~") == ["escape", "s", "page down"]
        assert keys_of("\x1b[1;5C") == []
        assert keys_of("\x00é") == ["é"]


@pytest.mark.parametrize(("view", "field"), [("groups", "nothing"), ("overview", "name")])
def test_a_field_that_a_view_does_not_have(view: str, field: str) -> None:
    with pytest.raises(BadArgument, match="sort"):
        TopState(view).sort_by(field)


class TestPicture:
    def test_a_list(self) -> None:
        text = shown(TopFigures("groups", OVERVIEW, [GROUP], 41), TopState("groups"))
        assert "Everything is fine." in text
        assert "billing[red]" in text
        assert "1,234" in text
        assert "75 s ↑" in text
        assert "1 of 41 groups, by lag_seconds, descending" in text

    def test_problems_are_said(self) -> None:
        problems = [{"severity": "critical", "sentence": f"problem {at}"} for at in range(5)]
        health = {"status": "critical", "sentence": "5 problems", "problems": problems}
        text = shown(TopFigures("overview", {**OVERVIEW, "health": health}), TopState())
        assert "5 problems" in text
        assert "problem 2" in text
        assert "problem 3" not in text

    def test_without_the_permission_and_without_anything(self) -> None:
        text = shown(TopFigures("topics", {**OVERVIEW, "health": None}), TopState("topics", search="x"))
        assert "users with DESCRIBE" in text
        assert "no topics with x in the name" in text

    def test_a_broker_that_is_away(self) -> None:
        text = shown(None, TopState("queues", typed="em"), "no broker answers", is_live=True)
        assert "no broker answers" in text
        assert "search: em" in text
        assert "4 queues" in text

    def test_values_that_are_not_known(self) -> None:
        broker = {
            "broker_id": 1, "endpoint": "a:1", "is_controller": False, "is_draining": True, "state": "active",
            "leaders": None, "partitions": None, "requests_per_s": None, "bytes_in_per_s": None,
            "bytes_out_per_s": None, "connections": None, "cpu_percent": None, "memory_bytes": None, "disks": [],
            "uptime_s": None,
        }  # fmt: skip
        text = shown(TopFigures("brokers", OVERVIEW, [broker], 1), TopState("brokers"))
        assert "draining" in text
        assert text.count("?") == 10

    def test_columns_have_names_of_their_own(self) -> None:
        for view in VIEWS.values():
            assert len(view.by_key) == len(view.columns)
            assert view.sort in view.by_key
            assert view.name_key in view.by_key
