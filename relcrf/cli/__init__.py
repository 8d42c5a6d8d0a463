"""The `relcrf` command: one module per group of commands; `options.py` and `output.py` are shared by all."""
