import pytest

from headrace.cli.errors import BadArgument
from headrace.cli.queue.run import options_of
from headrace.client.queue.settings import settings_of


def test_options_become_settings_of_the_queue() -> None:
    found = options_of("5m", None, "4d", 3, "dead", "500ms", ["queue.retry.jitter=0", "max.in.flight=10"])
    assert settings_of(found) == {  # type: ignore[arg-type]
        "visibility.timeout.ms": "300000",
        "retention.ms": "345600000",
        "retry.backoff.ms": "500",
        "max.receives": "3",
        "dead.letter": "dead",
        "retry.jitter": "0",
        "max.in.flight": "10",
    }


def test_nothing_given_is_no_setting() -> None:
    assert options_of(None, None, None, None, None, None, []) == {}


def test_a_setting_that_queues_do_not_have_is_refused() -> None:
    with pytest.raises(BadArgument, match=r"no setting cleanup\.policy"):
        options_of(None, None, None, None, None, None, ["cleanup.policy=compact"])


def test_a_misspelt_setting_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(BadArgument, match=r"no setting max\.recieves; did you mean queue\.max\.receives\?"):
        options_of(None, None, None, None, None, None, ["max.recieves=3"])
