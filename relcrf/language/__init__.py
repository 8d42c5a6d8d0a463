"""The language: text to a checked specification, and back."""
