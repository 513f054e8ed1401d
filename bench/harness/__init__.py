"""The parts of the benchmark harness; `bench/run.py` is the way in."""
