"""Send the tasks. Every fifth fails at first, every 20th twice; three of seven are delayed, by Celery or the queue."""

import os
import time
from datetime import UTC, datetime, timedelta

from kombu.exceptions import OperationalError
from tasks import work

DELAYS_S = {1: 2, 2: 4, 3: 3}


def send(number: int) -> None:
    failures = 2 if number % 20 == 0 else 1 if number % 5 == 0 else 0
    kind = number % 7
    delay_s = DELAYS_S.get(kind, 0)
    arguments = (number, failures, time.time() + delay_s)
    if kind == 1:
        work.apply_async(arguments, countdown=delay_s)
    elif kind == 2:
        work.apply_async(arguments, eta=datetime.now(UTC) + timedelta(seconds=delay_s))
    elif kind == 3:
        work.apply_async(arguments, DelaySeconds=delay_s)
    else:
        work.delay(*arguments)


for number in range(int(os.environ["COUNT"])):
    while True:
        try:
            send(number)
        except OperationalError:
            time.sleep(0.2)
        else:
            break
    time.sleep(0.02)
