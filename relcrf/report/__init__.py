"""A finished training as one HTML file."""
