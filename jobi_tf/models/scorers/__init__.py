"""Score functions, by name or as objects."""

import functools
from importlib import import_module
from typing import Any

import keras

from jobi_tf.errors import UsageError
from jobi_tf.models.scorers.bilinear import ComplEx, DistMult, SimplE
from jobi_tf.models.scorers.conve import ConvE
from jobi_tf.models.scorers.distances import RotatE, TransE
from jobi_tf.models.scorers.matrices import RESCAL, TuckER
from jobi_tf.models.scorers.scorer import Scorer, named_object
from jobi_tf.models.scorers.typed import TypeComplEx

__all__ = ["RESCAL", "SCORERS", "ComplEx", "ConvE", "DistMult", "RotatE", "Scorer", "SimplE", "TransE", "TuckER"]
__all__ += ["TypeComplEx", "full_name", "get"]

_CLASSES = (ComplEx, DistMult, SimplE, RESCAL, TuckER, TransE, RotatE, TypeComplEx, ConvE)
SCORERS: dict[str, type[Scorer]] = {cls.__name__.lower(): cls for cls in _CLASSES}


def get(scorer: str | dict[str, Any] | Scorer) -> Scorer:
    """Returns a scorer, given its name, its serialised form or the scorer itself.

    A scorer of your own is named `MODULE:CLASS`; its module is imported.

    Raises:
        UsageError: there is no such scorer.
    """
    if isinstance(scorer, str) and ":" in scorer:
        return _imported(scorer)
    found = named_object(scorer, Scorer, SCORERS)
    return _shared(found.name) if found is not scorer and type(found) in _CLASSES else found


def full_name(scorer: Scorer) -> str:
    """Returns the name by which `get` finds a scorer of this class."""
    cls = type(scorer)
    return scorer.name if cls in _CLASSES else f"{cls.__module__}:{cls.__qualname__}"


@functools.cache
def _imported(name: str) -> Scorer:
    module, _, attribute = name.partition(":")
    try:
        cls = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"cannot import the scorer {name}: {error}") from None
    if not (isinstance(cls, type) and issubclass(cls, Scorer)):
        raise UsageError(f"expected {name} to be a subclass of jobi_tf.Scorer, got {cls!r}")
    if not keras.saving.get_registered_object(keras.saving.get_registered_name(cls)):
        keras.saving.register_keras_serializable(module)(cls)  # so that saved models find it
    try:
        return cls()
    except TypeError as error:
        raise UsageError(f"expected {name} to have a constructor without required arguments: {error}") from None


@functools.cache
def _shared(name: str) -> Scorer:
    """Returns one object for all models: TensorFlow keeps what it traces and compiles for each scorer it is given."""
    return SCORERS[name]()
