"""Work through a queue: sent, handled by eight threads, retried when it fails, and set aside when nothing helps.

    python examples/queue_worker.py localhost:9092

Sends a few mails, handles them and ends. A real worker leaves out `client.stop` and runs until SIGTERM or Ctrl-C: then
it finishes what it has in hand and gives back the rest.
"""

import sys

from headrace import Client, QueueMessage, Reject

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
client = Client(bootstrap)
emails = client.queue("example.emails")
done = []


@emails.worker(concurrency=8)
def send_email(message: QueueMessage) -> None:
    """Acknowledged when it returns; while it works, the lease is kept. When it raises, it is tried again."""
    mail = message.json()
    if "to" not in mail:
        raise Reject("a mail to nobody will never be one")
    if mail["to"] == "bob" and message.attempt == 1:
        raise ConnectionError("the mail server is busy")
    print("mail to", mail["to"], "at attempt", message.attempt)
    done.append(mail["to"])
    if len(done) == 3:
        client.stop()


with client:
    emails.create(max_receives=5, dead_letter="example.emails-dead", backoff=0.2)
    emails.send({"to": "alice"})
    emails.send({"to": "bob"}, priority=9)
    emails.send({"subject": "nothing"})
    emails.send({"to": "carol"}, delay=0.5)
    client.run()
    for letter in client.queue("example.emails-dead").receive(max=10, wait=10):
        print("dead letter", letter.text, "because of", letter.reason)
        letter.ack()
