"""Work through a queue with the SDK, in turns, for the gate: sent, received, acknowledged.

    queue_turns.py PORT QUEUE

Each line on standard input is a number of messages; when they are acknowledged, the CPU time that this process spent on
them is printed, in ns. Which SDK it is, PYTHONPATH decides.
"""

import sys
import time

from headrace import Client

_AT_ONCE = 100
_STALL_S = 60.0
_BODY = b"x" * 100


def main() -> None:
    with Client(f"127.0.0.1:{sys.argv[1]}") as client:
        queue = client.queue(sys.argv[2]).create(visibility=600)
        for line in sys.stdin:
            left = int(line)
            begin = time.process_time_ns()
            while left > 0:
                size = min(left, _AT_ONCE)
                queue.send_many([_BODY] * size)
                under_way = size
                while under_way:
                    acks = [message.ack() for message in queue.receive(max=size, wait=1)]
                    for ack in acks:
                        ack.result(_STALL_S)
                    under_way -= len(acks)
                left -= size
            print(time.process_time_ns() - begin, flush=True)


if __name__ == "__main__":
    main()
