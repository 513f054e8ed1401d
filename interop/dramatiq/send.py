"""Send the tasks: every fifth fails at first and every 20th twice; two of seven are delayed."""

import os
import time

from botocore.exceptions import BotoCoreError, ClientError
from tasks import work

DELAYS_S = {1: 2, 2: 4}


def send(number: int) -> None:
    failures = 2 if number % 20 == 0 else 1 if number % 5 == 0 else 0
    delay_s = DELAYS_S.get(number % 7, 0)
    arguments = (number, failures, time.time() + delay_s)
    if delay_s:
        work.send_with_options(args=arguments, delay=delay_s * 1000)
    else:
        work.send(*arguments)


for number in range(int(os.environ["COUNT"])):
    while True:
        try:
            send(number)
        except (BotoCoreError, ClientError):
            time.sleep(0.2)
        else:
            break
    time.sleep(0.02)
