"""The HTML report of a run folder, and pictures of graphs and comparisons."""
