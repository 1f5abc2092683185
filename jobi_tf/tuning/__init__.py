"""Optuna studies over the settings of a training."""
