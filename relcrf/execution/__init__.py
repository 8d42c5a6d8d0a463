"""Executors that run tasks on the shards of a ground graph, in this process, in worker processes, or on Spark."""
