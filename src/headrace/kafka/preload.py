"""Background loading of the schemas of every version of every API: those that all clients need first, newest first.

Otherwise the first request of a version would load its schema, and block the event loop for some milliseconds each time
a new kind of client connects.

The thread only computes. The event loop needs the interpreter's lock several times in each of its turns, after each
system call, so while this thread runs the interpreter switches between threads more often.
"""

import sys
import threading

from headrace.kafka.dispatch import APIS
from headrace.protocol.codec import prepare, read_request

_FIRST = frozenset((1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 22))
"""Fetch, ListOffsets, Metadata, groups with their offsets, ApiVersions and InitProducerId."""
_THREAD_SWITCH_S = 0.0001


class Preload:
    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="preload", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop loading and join the thread, which ends after the schema in progress."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        usual_s = sys.getswitchinterval()
        sys.setswitchinterval(min(usual_s, _THREAD_SWITCH_S))
        try:
            self._load()
        finally:
            sys.setswitchinterval(usual_s)

    def _load(self) -> None:
        in_order = sorted(
            (api.key not in _FIRST, api.max_version - version, api.key, version)
            for api in APIS.values()
            if api.read is read_request  # otherwise requests and answers are encoded by hand
            for version in range(api.min_served, api.max_version + 1)
        )
        for _, _, key, version in in_order:
            if self._stopping.is_set():
                return
            prepare(key, version)
