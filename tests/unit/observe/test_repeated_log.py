import logging

import pytest

from headrace.observe.repeated_log import MAX_SOURCES, RepeatedLog

LOGGER = logging.getLogger("headrace.test")


@pytest.fixture
def captured(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER.name)
    return caplog


def test_the_first_event_is_logged_at_once_and_others_are_counted(captured: pytest.LogCaptureFixture) -> None:
    log = RepeatedLog(LOGGER)
    for number in range(5):
        log.note("10.0.0.1", f"event {number}")
    assert captured.messages == ["event 0"]
    # A line has just been logged: the next one follows a second later.
    log.flush()
    assert len(captured.messages) == 1
    log.flush()
    assert captured.messages[-1] == "event 4 (and 3 more from 10.0.0.1)"


def test_a_source_that_was_quiet_is_logged_at_once_again(captured: pytest.LogCaptureFixture) -> None:
    log = RepeatedLog(LOGGER)
    log.note("10.0.0.1", "first")
    log.flush()
    log.flush()
    log.note("10.0.0.1", "second", logging.WARNING)
    assert captured.messages == ["first", "second"]
    assert captured.records[-1].levelno == logging.WARNING


def test_many_sources_share_one_line(captured: pytest.LogCaptureFixture) -> None:
    log = RepeatedLog(LOGGER)
    for number in range(10 * MAX_SOURCES):
        log.note(f"source {number}", f"event {number}")
    assert len(captured.messages) == MAX_SOURCES + 1
    log.flush()
    log.flush()
    assert len(captured.messages) == MAX_SOURCES + 2
    assert "more from other addresses" in captured.messages[-1]
