"""Executors for work on the shards of a ground graph: this process, processes of this machine, or Spark."""
