"""Count words: read sentences, write words, each exactly once, also if this is killed at any moment and started again.

python examples/exactly_once.py localhost:9092
"""

import sys

from headrace import Client

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"

with Client(bootstrap) as client:
    for number in range(100):
        client.publish_soon("example.sentences", f"sentence number {number}", key=str(number))
    client.flush()
    read = 0
    with client.consume("example.sentences", group="splitter", delivery="exactly-once") as sentences:
        for sentence in sentences:
            for word in sentence.text.split():
                sentences.publish("example.words", word, key=word)
            read += 1
            if read == 100:
                break
    print(sum(1 for _ in client.replay("example.words")), "words")
