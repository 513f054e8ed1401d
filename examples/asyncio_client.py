"""The same verbs with asyncio.

python examples/asyncio_client.py localhost:9092
"""

import asyncio
import sys

from headrace.aio import Client


async def main(bootstrap: str) -> None:
    async with Client(bootstrap) as client, client.subscribe("example.news", start="earliest") as news:
        await asyncio.gather(*(client.publish("example.news", {"number": number}) for number in range(10)))
        for _ in range(10):
            message = await anext(news)
            print(message.partition, message.offset, message.json())


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
