"""The `relcrf` command: a file for each group of commands, `output.py` for what they share."""
