"""Long columns of numbers: built in memory or on disk, and sorted out of core."""
