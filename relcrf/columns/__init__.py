"""Long columns of numbers: growing in memory or on disk, and sorted without being held whole."""
