"""Which factors act."""
