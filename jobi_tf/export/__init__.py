"""A trained run as a SavedModel that answers by name, without this library."""

from jobi_tf.export.export import Exported as Exported
from jobi_tf.export.export import export_run as export_run
