"""Editors: the language server behind `relcrf lsp`, and the Pygments lexer. Needs the extra `editor`."""
