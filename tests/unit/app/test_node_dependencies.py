"""Threads of a broker for blocking work."""

import threading

from headrace.app.node_dependencies import started_thread_pool


def test_no_thread_is_left_to_be_started_by_the_event_loop() -> None:
    with started_thread_pool(3, "ready-test") as pool:
        threads = {each for each in threading.enumerate() if each.name.startswith("ready-test")}
        assert len(threads) == 3
        assert pool.submit(threading.current_thread).result(60) in threads
