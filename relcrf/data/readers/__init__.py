"""Readers of file formats, one per module, discovered through the entry points `relcrf.readers`."""
