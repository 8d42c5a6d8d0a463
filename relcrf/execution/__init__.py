"""Who does the work on the shards of a ground graph: this process, processes of this machine, or Spark."""
