"""Structure learning: selection of the factors of a model, by spanning forests or by search over candidates."""
