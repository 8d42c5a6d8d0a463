"""Inference methods: marginals, most probable states and log partition functions; one method per file."""
