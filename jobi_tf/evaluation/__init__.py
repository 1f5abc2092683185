"""Filtered ranks over all entities, metrics of ranks, and best answers to a query."""
