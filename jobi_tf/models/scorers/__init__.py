"""Score functions, by name or as objects."""

import functools
from typing import Any

from jobi_tf.models.scorers.bilinear import ComplEx, DistMult, SimplE
from jobi_tf.models.scorers.conve import ConvE
from jobi_tf.models.scorers.distances import RotatE, TransE
from jobi_tf.models.scorers.matrices import RESCAL, TuckER
from jobi_tf.models.scorers.scorer import Scorer, named_object
from jobi_tf.models.scorers.typed import TypeComplEx

__all__ = ["RESCAL", "SCORERS", "ComplEx", "ConvE", "DistMult", "RotatE", "Scorer", "SimplE", "TransE", "TuckER"]
__all__ += ["TypeComplEx", "get"]

_CLASSES = (ComplEx, DistMult, SimplE, RESCAL, TuckER, TransE, RotatE, TypeComplEx, ConvE)
SCORERS: dict[str, type[Scorer]] = {cls.__name__.lower(): cls for cls in _CLASSES}


def get(scorer: str | dict[str, Any] | Scorer) -> Scorer:
    """Returns a scorer, given its name, its serialised form or the scorer itself.

    Raises:
        UsageError: there is no such scorer.
    """
    found = named_object(scorer, Scorer, SCORERS)
    return _shared(found.name) if found is not scorer and type(found) in _CLASSES else found


@functools.cache
def _shared(name: str) -> Scorer:
    """Returns one object for all models: TensorFlow keeps what it traces and compiles for each scorer it is given."""
    return SCORERS[name]()
