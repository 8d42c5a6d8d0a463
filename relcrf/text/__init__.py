"""A model as characters: tokens with their places, what each declaration begins with, and colours."""
