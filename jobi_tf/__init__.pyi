"""The public names. `lazy_loader` reads them here and loads each when it is first used."""

from .data.batches import query_batches as query_batches
from .data.batches import steps_per_epoch as steps_per_epoch
from .data.batches import training_batches as training_batches
from .data.graph import Graph as Graph
from .data.soft_labels import SoftLabels as SoftLabels
from .datasets import load_graph as load_graph
from .errors import DataError as DataError
from .errors import JobiError as JobiError
from .errors import UsageError as UsageError
from .evaluation.evaluate import evaluate as evaluate
from .evaluation.rules import RuleModel as RuleModel
from .evaluation.soft_labels import soft_labels as soft_labels
from .export.export import export_run as export_run
from .losses import FullSoftmax as FullSoftmax
from .losses import PairCrossentropy as PairCrossentropy
from .losses import SampledLogistic as SampledLogistic
from .losses import SampledMargin as SampledMargin
from .losses import SampledSoftmax as SampledSoftmax
from .models.jobi import JoBi as JoBi
from .models.regularizers import DURA as DURA
from .models.regularizers import L2 as L2
from .models.regularizers import N3 as N3
from .models.regularizers import Regularizer as Regularizer
from .models.regularizers import RelationPrediction as RelationPrediction
from .models.scorers import Scorer as Scorer
from .optimizers import LazyAdagrad as LazyAdagrad
from .optimizers import LazyAdam as LazyAdam
from .optimizers import RowAdagrad as RowAdagrad
from .training.callbacks import AverageWeights as AverageWeights
from .training.callbacks import ValidationRanking as ValidationRanking
from .training.merge import merge_runs as merge_runs
from .training.pool import Pool as Pool
from .training.run import Run as Run
from .training.run import load_run as load_run
from .training.storage import load_model as load_model
from .training.train import resume as resume
from .training.train import train as train

__version__: str
