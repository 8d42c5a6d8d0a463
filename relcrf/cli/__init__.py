"""The `relcrf` command: one module per group of commands; all of them use `options.py` and `output.py`."""
