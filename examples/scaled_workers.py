"""An application for `headrace work`, which runs it in as many processes as its backlog needs.

    cd examples
    headrace work scaled_workers:client --max 4 --target-seconds 5

and, in another terminal, `python scaled_workers.py localhost:9092` sends it work for a while.
"""

import sys
import time

from headrace import Client, QueueMessage

client = Client(sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else None)
thumbnails = client.queue("example.thumbnails")


@thumbnails.worker(concurrency="auto")
def make_thumbnail(message: QueueMessage) -> None:
    """Half of the time it waits for a file, so several threads are faster than one."""
    time.sleep(0.05)


if __name__ == "__main__":
    with client:
        thumbnails.create()
        sent = thumbnails.send_many([f"picture-{number}.jpg" for number in range(2_000)])
        print(len(sent), "pictures to do")
