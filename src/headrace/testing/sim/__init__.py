"""The simulator: several brokers, a store and clients in one thread on a virtual clock; see `docs/architecture.md`.

world.py       virtual time, one event loop per process, pauses and kills
disk_time.py   flushes and worker threads that take virtual time
network.py     connections with delay, loss and cuts
store.py       the metadata store as a model, and each broker's way to it
serving.py     the door of a broker: the real handlers on the simulated network
"""
