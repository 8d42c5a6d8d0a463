"""The language server that `relcrf lsp` starts; it needs the extra `editor`."""
