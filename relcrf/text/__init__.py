"""Model text and tables as highlighted HTML."""
