"""The scorers by name."""

from jobi_tf.errors import UsageError
from jobi_tf.models.bilinear import RESCAL, ComplEx, DistMult, SimplE, TuckER
from jobi_tf.models.distances import RotatE, TransE
from jobi_tf.models.reciprocal import Reciprocal
from jobi_tf.models.scorer import Scorer
from jobi_tf.models.typed import TypeComplEx

_ALL = (ComplEx(), DistMult(), SimplE(), RESCAL(), TuckER(), TransE(), RotatE(), TypeComplEx())
SCORERS: dict[str, Scorer] = {scorer.name: scorer for scorer in _ALL}


def get_scorer(name: str, reciprocal: bool = False) -> Scorer:
    """Returns the scorer of that name, with reciprocal relations if these are wanted.

    Raises:
        UsageError: there is none.
    """
    if name not in SCORERS:
        raise UsageError(f"expected a scorer out of {', '.join(SCORERS)}, got {name!r}")
    return Reciprocal(SCORERS[name]) if reciprocal else SCORERS[name]
