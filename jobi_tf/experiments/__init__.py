"""Searches, sweeps, tables and reports: what is made of many runs."""
