"""Experiments as data: their runs, and the tables and pictures that are made of them."""
