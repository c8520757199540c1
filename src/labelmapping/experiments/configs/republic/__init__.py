"""Plato's Republic: the paper's table 4, and rows of our own."""
