"""A web application whose messages are handled in the same process: Starlette here, FastAPI takes the same lifespan.

    python examples/web_app.py localhost:9092

    curl -X POST localhost:8000/orders -d '{"item": "tea"}'
    curl localhost:8000/health

SIGTERM and Ctrl-C are uvicorn's: it ends requests, then the lifespan, which finishes the messages in hand.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from headrace import Backoff
from headrace.aio import Client

client = Client(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092")


@client.handler("web.orders", group="billing", retry=Backoff(attempts=3), dead_letter="web.orders.dlq")
async def bill(order) -> None:
    await asyncio.sleep(0.1)
    print("billed", order.json()["item"], flush=True)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with client, client.running():
        yield


async def place_order(request: Request) -> JSONResponse:
    stored = await client.publish("web.orders", await request.json())
    return JSONResponse({"offset": stored.offset}, status_code=201)


async def health(request: Request) -> JSONResponse:
    found = client.health()
    return JSONResponse(found.as_dict(), status_code=200 if found.is_running else 503)


app = Starlette(
    routes=[Route("/orders", place_order, methods=["POST"]), Route("/health", health)],
    lifespan=lifespan,
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]) if len(sys.argv) > 2 else 8000)
