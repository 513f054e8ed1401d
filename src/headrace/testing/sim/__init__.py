"""Simulated clusters: the brokers of production, a store and clients in one thread on a virtual clock.

    world.py       virtual time, one event loop per process, pauses and kills
    disk_time.py   flushes and worker threads that take virtual time
    network.py     connections with delay, loss and cuts
    store.py       the metadata store as a model, and each broker's way to it
    serving.py     the door of a broker: the real handlers on the simulated network
    node.py        a broker in these surroundings
    cluster.py     machines with brokers on them, and what is known of them from outside
    clients.py     producers and consumers
    transactions.py  the same with transactions
    nemesis.py     what goes wrong
    checks.py      what must hold all the same, at every step
    running.py     one seed, one run

`python -m headrace.testing.sim --seeds 300` runs some.
"""
