"""The scorers by name."""

from jobi_tf.errors import UsageError
from jobi_tf.models.bilinear import RESCAL, ComplEx, DistMult, SimplE, TuckER
from jobi_tf.models.conve import ConvE
from jobi_tf.models.distances import RotatE, TransE
from jobi_tf.models.reciprocal import Reciprocal
from jobi_tf.models.scorer import Scorer
from jobi_tf.models.typed import TypeComplEx

_ALL = (ComplEx(), DistMult(), SimplE(), RESCAL(), TuckER(), TransE(), RotatE(), TypeComplEx())
SCORERS: dict[str, Scorer] = {scorer.name: scorer for scorer in _ALL}
# Those that ask for heads by reciprocal relations only.
TAIL_SCORERS: dict[str, Scorer] = {scorer.name: scorer for scorer in (ConvE(),)}


def get_scorer(name: str, reciprocal: bool = False) -> Scorer:
    """Returns the scorer of that name, with reciprocal relations if these are wanted.

    Raises:
        UsageError: there is none.
    """
    scorers = SCORERS | TAIL_SCORERS
    if name not in scorers:
        raise UsageError(f"expected a scorer out of {', '.join(scorers)}, got {name!r}")
    return Reciprocal(scorers[name]) if reciprocal else scorers[name]
