"""A model as colours and tables for people."""
