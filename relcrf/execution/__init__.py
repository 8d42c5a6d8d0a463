"""Executors that run tasks on the shards of a ground graph: in this process, in processes of this machine, or on Spark."""
