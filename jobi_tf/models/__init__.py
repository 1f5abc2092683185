"""Scorers and the joint model."""

# First of all: as soon as Keras is there `jobi_tf` imports the model, which would be in the middle of a module here.
import keras  # noqa: F401
