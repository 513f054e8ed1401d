"""`headrace.aio.Client`: the SDK for asyncio. See `headrace.client.aio`."""

from headrace.client.aio import Client, Stream, Transaction

__all__ = ["Client", "Stream", "Transaction"]
