"""Deterministic simulation of clusters: production brokers, a store and clients in one thread on a virtual clock.

    world.py       virtual time, one event loop per process, pauses and kills
    disk_time.py   flushes and worker threads that take virtual time
    network.py     connections with delay, loss and partitions
    store.py       a model of the metadata store, and each broker's unreliable connection to it
    server.py      a broker's listener: the real handlers on the simulated network
    node.py        a broker with simulated dependencies
    cluster.py     machines with brokers on them, and the cluster as tests see it
    clients.py     producers and consumers
    transactions.py  transactional producers and read_committed consumers
    nemesis.py     fault injection
    checks.py      invariants, checked at every step
    course.py      a cluster with its clients, from start to end
    linked.py      two clusters, one of which mirrors the other
    runner.py      one run of one seed

`python -m headrace.testing.sim --seeds 300` runs some.
"""
