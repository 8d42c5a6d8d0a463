"""File formats, one a file; found by the entry points `relcrf.readers`."""
