"""From templates and tables to the ground graph: template -> relational plan -> SQL -> flat arrays."""
