"""Knowledge-graph completion with TensorFlow and Keras 3.

Embeddings, such as DistMult, ComplEx and SimplE, trained jointly with entity-relation pair occurrences (JoBi, Balkır et
al., EMNLP 2019). TensorFlow is loaded when one of the names below is first used, not when this package is imported.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from jobi_tf.data.batches import query_batches as query_batches
    from jobi_tf.data.batches import steps_per_epoch as steps_per_epoch
    from jobi_tf.data.batches import training_batches as training_batches
    from jobi_tf.data.graph import Graph as Graph
    from jobi_tf.datasets import load_graph as load_graph
    from jobi_tf.errors import DataError as DataError
    from jobi_tf.errors import JobiError as JobiError
    from jobi_tf.errors import UsageError as UsageError
    from jobi_tf.evaluation.evaluate import evaluate as evaluate
    from jobi_tf.evaluation.rules import RuleModel as RuleModel
    from jobi_tf.losses import FullSoftmax as FullSoftmax
    from jobi_tf.losses import PairCrossentropy as PairCrossentropy
    from jobi_tf.losses import SampledLogistic as SampledLogistic
    from jobi_tf.losses import SampledMargin as SampledMargin
    from jobi_tf.losses import SampledSoftmax as SampledSoftmax
    from jobi_tf.models.jobi import JoBi as JoBi
    from jobi_tf.models.regularizers import DURA as DURA
    from jobi_tf.models.regularizers import L2 as L2
    from jobi_tf.models.regularizers import N3 as N3
    from jobi_tf.models.regularizers import Regularizer as Regularizer
    from jobi_tf.models.regularizers import RelationPrediction as RelationPrediction
    from jobi_tf.models.scorers import Scorer as Scorer
    from jobi_tf.optimizers import LazyAdagrad as LazyAdagrad
    from jobi_tf.optimizers import LazyAdam as LazyAdam
    from jobi_tf.optimizers import RowAdagrad as RowAdagrad
    from jobi_tf.training.callbacks import AverageWeights as AverageWeights
    from jobi_tf.training.callbacks import ValidationRanking as ValidationRanking
    from jobi_tf.training.merge import merge_runs as merge_runs
    from jobi_tf.training.pool import Pool as Pool
    from jobi_tf.training.run import Run as Run
    from jobi_tf.training.run import load_run as load_run
    from jobi_tf.training.storage import load_model as load_model
    from jobi_tf.training.train import resume as resume
    from jobi_tf.training.train import train as train

__version__ = "0.1.0"

_NAMES = {
    "data.batches": ["query_batches", "steps_per_epoch", "training_batches"],
    "data.graph": ["Graph"],
    "datasets": ["load_graph"],
    "errors": ["DataError", "JobiError", "UsageError"],
    "evaluation.evaluate": ["evaluate"],
    "evaluation.rules": ["RuleModel"],
    "losses": ["FullSoftmax", "PairCrossentropy", "SampledLogistic", "SampledMargin", "SampledSoftmax"],
    "models.jobi": ["JoBi"],
    "models.regularizers": ["DURA", "L2", "N3", "Regularizer", "RelationPrediction"],
    "models.scorers": ["Scorer"],
    "optimizers": ["LazyAdagrad", "LazyAdam", "RowAdagrad"],
    "training.callbacks": ["AverageWeights", "ValidationRanking"],
    "training.merge": ["merge_runs"],
    "training.pool": ["Pool"],
    "training.run": ["Run", "load_run"],
    "training.storage": ["load_model"],
    "training.train": ["resume", "train"],
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]


@wrapt.when_imported("keras")
def _register_classes(keras: Any) -> None:
    """Registers the classes of saved models as soon as Keras is there, so that `keras.saving.load_model` knows them."""
    if keras.backend.backend() == "tensorflow":
        for module in ("models.jobi", "losses", "optimizers"):
            import_module(f"{__name__}.{module}")
