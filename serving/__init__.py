"""Serving of exported models."""
