"""The model language: parsing, validation, rendering and formatting of `.rcrf` models."""
