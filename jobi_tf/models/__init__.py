"""Scorers and the joint model."""
