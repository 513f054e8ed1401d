"""Typed messages: the broker's schema registry checks what is written, and a type what is read.

    python examples/typed_messages.py localhost:9092

The second version of the type has one more field. Programs with the old type read its messages, and those with the new
type read old messages; a change that would break either is refused.
"""

import sys
from dataclasses import dataclass

from headrace import Client, InvalidMessage, Message, SchemaFailed

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
client = Client(bootstrap)
TOPIC, SUBJECT = "example.sales", "example.sales-value"


@dataclass
class Sale:
    item: str
    price: float
    currency: str = "EUR"


@dataclass
class OldSale:
    item: str
    price: float


@client.handler(TOPIC, group="books", type=Sale, dead_letter=f"{TOPIC}.dlq")
def book(message: Message) -> None:
    sale: Sale = message.value
    print("booked", sale.item, sale.price, sale.currency)
    if sale.item == "last":
        client.stop()


FIRST = """{"type": "record", "name": "Sale", "fields": [
    {"name": "item", "type": "string"}, {"name": "price", "type": "double"}
]}"""
BROKEN = '{"type": "record", "name": "Sale", "fields": [{"name": "id", "type": "long"}]}'

with client:
    client.topics.create(TOPIC, partitions=1, exist_ok=True)
    client.schemas.register(SUBJECT, FIRST)
    client.publish(TOPIC, OldSale("tea", 2.5), schema=SUBJECT)
    client.schemas.register(SUBJECT, Sale)
    client.publish(TOPIC, Sale("cake", 3.0, "GBP"), schema=SUBJECT)
    try:
        client.publish(TOPIC, {"item": "juice", "price": "dear"}, schema=SUBJECT)
    except InvalidMessage as error:
        print("not sent:", error)
    try:
        client.schemas.register(SUBJECT, BROKEN)
    except SchemaFailed as error:
        print("not registered:", error.code)
    client.publish(TOPIC, b"not a sale")
    client.publish(TOPIC, Sale("last", 1.0), schema=SUBJECT)
    client.run()
    for letter in client.replay(f"{TOPIC}.dlq"):
        print("dead letter because of", letter.header("headrace-reason"))
