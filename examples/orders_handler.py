"""A worker that bills orders: retried with backoff, in order, and dead-lettered when nothing helps.

    python examples/orders_handler.py localhost:9092

Publishes a few orders, handles them and ends. A real worker leaves out `client.stop` and runs until SIGTERM or Ctrl-C.
"""

import sys

from headrace import Backoff, Client, Message, Outgoing, Reject

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
client = Client(bootstrap)
handled = []


@client.handler(
    "example.orders",
    group="billing",
    delivery="at-least-once",
    retry=Backoff(initial_s=0.1, attempts=3),
    dead_letter="example.orders.dlq",
)
def bill(order: Message) -> Outgoing:
    """Returns the invoice to publish; the order is acknowledged when the invoice is stored."""
    wanted = order.json()
    if "item" not in wanted:
        raise Reject("an order without an item will never be one")
    return Outgoing("example.invoices", {"bill": wanted["item"]}, key=order.key, correlation_id=order.id)


@client.handler("example.invoices", group="post")
def post(invoice: Message) -> None:
    print("posting", invoice.text)
    handled.append(invoice)
    if len(handled) == 2:
        client.stop()


with client:
    for order in ({"item": "tea"}, {"nothing": True}, {"item": "cake"}):
        client.publish("example.orders", order, key="alice", type="order.placed")
    client.run()
    for letter in client.replay("example.orders.dlq"):
        print("dead letter", letter.text, "because of", letter.header("headrace-reason"))
