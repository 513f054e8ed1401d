"""Background loading of the schemas of every version of every API, newest first.

Otherwise the first request of a version would load its schema, and block the event loop for some milliseconds each time
a new kind of client connects.
"""

import threading

from headrace.kafka.dispatch import APIS
from headrace.protocol.codec import prepare


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
        by_age = sorted(
            (api.max_version - version, api.key, version)
            for api in APIS.values()
            for version in range(api.min_served, api.max_version + 1)
        )
        for _, key, version in by_age:
            if self._stopping.is_set():
                return
            prepare(key, version)
