"""Knowledge-graph completion with TensorFlow and Keras 3.

Bilinear embeddings (DistMult, ComplEx, SimplE) trained jointly with entity-relation pair occurrences (JoBi, Balkır et
al., EMNLP 2019). The names below load TensorFlow when they are first used, not when this package is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph as Graph
    from jobi_tf.datasets import load_graph as load_graph
    from jobi_tf.evaluation.evaluate import evaluate as evaluate
    from jobi_tf.losses import FullSoftmax as FullSoftmax
    from jobi_tf.losses import PairCrossentropy as PairCrossentropy
    from jobi_tf.losses import SampledLogistic as SampledLogistic
    from jobi_tf.losses import SampledMargin as SampledMargin
    from jobi_tf.losses import SampledSoftmax as SampledSoftmax
    from jobi_tf.models.jobi import JoBi as JoBi
    from jobi_tf.optimizers import LazyAdagrad as LazyAdagrad
    from jobi_tf.optimizers import LazyAdam as LazyAdam
    from jobi_tf.training.run import Run as Run
    from jobi_tf.training.run import load_model as load_model
    from jobi_tf.training.run import load_run as load_run
    from jobi_tf.training.train import resume as resume
    from jobi_tf.training.train import train as train

__version__ = "0.1.0"

_HOMES = {
    "FullSoftmax": "losses",
    "Graph": "data.graph",
    "JoBi": "models.jobi",
    "LazyAdagrad": "optimizers",
    "LazyAdam": "optimizers",
    "PairCrossentropy": "losses",
    "Run": "training.run",
    "SampledLogistic": "losses",
    "SampledMargin": "losses",
    "SampledSoftmax": "losses",
    "evaluate": "evaluation.evaluate",
    "load_graph": "datasets",
    "load_model": "training.run",
    "load_run": "training.run",
    "resume": "training.train",
    "train": "training.train",
}
# Classes that a saved model may hold: Keras finds those that are imported when it loads one.
_SAVED = (
    *("JoBi", "LazyAdagrad", "LazyAdam"),
    *("FullSoftmax", "PairCrossentropy", "SampledLogistic", "SampledMargin", "SampledSoftmax"),
)
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for needed in _SAVED if name in (*_SAVED, "load_model") else ():
        import_module(f"{__name__}.{_HOMES[needed]}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
