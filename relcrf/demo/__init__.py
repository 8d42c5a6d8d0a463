"""The digits demo: collective recognition of handwritten digits, from data to predictions."""
