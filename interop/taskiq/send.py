"""Send the tasks: every fifth fails at first and every 20th twice; two of seven are delayed."""

import asyncio
import os
import time

from taskiq.exceptions import SendTaskError
from tasks import broker, work

DELAYS_S = {1: 2, 2: 4}


async def send(number: int) -> None:
    failures = 2 if number % 20 == 0 else 1 if number % 5 == 0 else 0
    delay_s = DELAYS_S.get(number % 7, 0)
    arguments = (number, failures, time.time() + delay_s)
    if delay_s:
        await work.kicker().with_labels(delay=delay_s).kiq(*arguments)
    else:
        await work.kiq(*arguments)


async def main() -> None:
    await broker.startup()
    for number in range(int(os.environ["COUNT"])):
        while True:
            try:
                await send(number)
            except SendTaskError:
                await asyncio.sleep(0.2)
            else:
                break
        await asyncio.sleep(0.02)
    await broker.shutdown()


asyncio.run(main())
