"""All settings of a training run, in one frozen object that is read from and written to YAML; and recipes."""

import os
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from jobi_tf.errors import UsageError, validation_message

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph

_FULL = "full-softmax"
AUTO = "auto"  # the recipe that searches

# The parts of the logs for TensorBoard.
TENSORBOARD = ("scalars", "hparams", "text", "projector", "histograms", "images", "graph")
_PART = f"({'|'.join(TENSORBOARD)})"

MODELS = ("complex", "distmult", "simple", "rescal", "tucker", "transe", "rotate", "typecomplex", "conve")

MERGEABLE = ("complex", "distmult", "simple", "rescal")  # models whose sum is one of the same kind

# What settings are called in other libraries.
SYNONYMS = {
    "lr": "learning_rate",
    "bs": "batch_size",
    "batch": "batch_size",
    "data": "dataset",
    "embedding_dim": "dim",
    "neg": "negatives",
    "num_negatives": "negatives",
    "num_epochs": "epochs",
    "max_epochs": "epochs",
    "scorer": "model",
    "gpus": "devices",
}


RECORDED = ("merged_from", "extended_by", "own_program")  # what the library notes of a run, and nobody sets


class TrainConfig(BaseModel):
    """Settings of a training run. Field names are the options of `jobi-tf train`, with `_` for `-`.

    Raises:
        UsageError: by `create`, if a setting is unknown, missing or out of range.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", coerce_numbers_to_str=True, str_min_length=1, allow_inf_nan=False
    )

    recipe: str | None = Field(
        None,
        description="settings that other options override: paper, strong, fast, large, auto (a search) or a YAML file",
    )
    minutes: float | None = Field(None, gt=0, description="recipe auto: time for search and training (default: 15)")
    dataset: str = Field(description="name of a data set, or a folder or file of triples")
    split: str | None = Field(None, description="shares of train/valid/test for one file, such as 0.8/0.1/0.1")
    columns: str | None = Field(None, description="names or numbers of head, relation and tail columns, such as a,b,c")
    header: bool | None = Field(None, description="whether files of triples begin with a header (default: detect)")
    weights: str | None = Field(None, description="name or number of the column with the weights of training triples")
    model: str = Field(
        "complex",
        description=f"score function: {', '.join(MODELS)} (which needs full-softmax and reciprocal relations), "
        "or MODULE:CLASS",
    )
    reciprocal: bool = Field(False, description="predict heads by inverse relations (with full-softmax or by-side)")
    joint: bool = Field(True, description="train the pair head too")
    p: float = Field(0.3, ge=0, le=1, description="share of negatives drawn from entities seen with the relation")
    alpha: float = Field(1.0, ge=0, description="weight of the pair loss")
    answers_per_query: int = Field(
        8, ge=1, description="full-softmax: largest number of answers of a query; others are split (paper: 1)"
    )
    rare_weight: float = Field(
        1.0,
        gt=0,
        le=1,
        description="full-softmax: weight of the rarest answers in the loss; it grows to 1 for the most frequent one "
        "(needs answers-per-query 1)",
    )
    pair_entities: int | None = Field(
        None, ge=1, description="full-softmax: entities in the pair loss of a step, taken in turn (default: all)"
    )
    dim: int = Field(200, ge=1, description="embedding size d; ComplEx, SimplE and RotatE store 2d real numbers")
    loss: Literal["softmax", "full-softmax", "logistic", "margin"] = Field(
        "softmax", description="loss of the triple head: over sampled negatives, or full-softmax over all entities"
    )
    margin: float | None = Field(
        None,
        ge=0,
        description="margin of the loss margin (default: 1); added to scores by logistic (default: 0, distances: 6)",
    )
    adversarial_temperature: float = Field(
        0.0, ge=0, description="logistic: weight negatives by a softmax of their scores times this value"
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of the triple head's target that is spread over all candidates"
    )
    soft_labels: str | None = Field(
        None, description="full-softmax: file of `jobi-tf soft-labels`, from which the triple head also learns"
    )
    soft_weight: float = Field(10.0, gt=0, description="factor for the odds of soft labels against the answers")
    n3: float = Field(0.0, ge=0, description="weight of N3 on the embeddings of training triples")
    n3_pair: float = Field(0.0, ge=0, description="weight of N3 on the relation embeddings of the pair head")
    l2: float = Field(0.0, ge=0, description="weight of L2 on the embeddings of training triples")
    dura: float = Field(0.0, ge=0, description="weight of DURA on the entities and queries of training triples")
    entity_dropout: float = Field(0.0, ge=0, lt=1, description="dropout rate of entity embeddings in queries")
    relation_dropout: float = Field(0.0, ge=0, lt=1, description="dropout rate of relation embeddings in queries")
    relation_prediction: float = Field(0.0, ge=0, description="weight of the loss that predicts relations")
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="full-softmax: dtype of the matrix products of training; bfloat16 is faster on some CPUs"
    )
    jit_compile: bool = Field(False, description="compile the step by XLA, which is faster on a GPU with full-softmax")
    table_dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="sampled negatives: dtype of entity table and optimizer state; bfloat16 halves their memory",
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        description="triples of a step on all devices (default: up to 1000); full-softmax: queries (up to 500)",
    )
    negatives: int = Field(50, ge=1, description="negatives for each triple")
    negatives_mode: Literal["own", "by-side", "shared", "shared-by-side"] = Field(
        "own",
        description="own: each triple has its own negatives; shared: the triples of a chunk share them, which is "
        "faster; by-side: separate losses for heads and tails",
    )
    chunk: int = Field(10, ge=1, description="number of triples that share their negatives")
    filter_negatives: bool = Field(False, description="leave negatives that are training triples out of the loss")
    learning_rate: float | None = Field(
        None, gt=0, description="learning rate (default: 0.0008 for Adam, 0.0012 with shared negatives; 0.1 for others)"
    )
    optimizer: Literal["adam", "adagrad", "row-adagrad"] = Field(
        "adam", description="optimizer, which updates the rows of a batch; row-adagrad takes a third of Adam's memory"
    )
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        "constant", description="learning rate over all epochs: constant, falling to 0 (cosine) or to a hundredth"
    )
    warmup_epochs: int = Field(0, ge=0, description="cosine: epochs in which the learning rate rises linearly from 0")
    epochs: int = Field(100, ge=1, description="largest number of epochs")
    average_epochs: int = Field(
        4, ge=1, description="rank and keep the mean of the weights over about the last N epochs; 1: the last weights"
    )
    eval_every: int = Field(5, ge=0, description="epochs between rankings of the validation split; 0: never rank")
    eval_first: int | None = Field(
        None, ge=1, description="epoch of the first ranking, from which --eval-every counts (default: --eval-every)"
    )
    monitor: Literal["mrr", "hits@1", "hits@3", "hits@10"] = Field(
        "mrr", description="validation metric that chooses the best epoch and ends training"
    )
    patience: int = Field(2, ge=1, description="number of rankings without improvement after which training stops")
    warm_start: str | None = Field(None, description="run to copy embeddings from, by name; others are initialised")
    entity_vectors: str | None = Field(None, description="file of entity embeddings, by name: .npz or word2vec text")
    freeze_entities: bool = Field(False, description="do not train entity embeddings, given or initialised")
    checkpoint_every: str = Field(
        "1", pattern=r"^[1-9]\d*m?$", description="epochs between checkpoints, or minutes such as 10m"
    )
    tensorboard: str = Field(
        "all",
        pattern=rf"^(all|none|{_PART}(,{_PART})*)$",
        description=f"what to log for TensorBoard: all, none, or some of {', '.join(TENSORBOARD)}",
    )
    profile: str | None = Field(
        None, pattern=r"^\d+:\d+$", description="first and last step that TensorFlow's profiler records, such as 10:20"
    )
    seed: int = Field(0, ge=0, lt=2**62, description="seed of embeddings, order, negatives and dropout")
    strategy: Literal["auto", "one", "mirrored", "multi-worker", "parameter-server"] = Field(
        "auto",
        description="one: one device; mirrored: several devices of this machine; multi-worker, parameter-server: the "
        "processes in TF_CONFIG; auto: whichever is available",
    )
    devices: str = Field("all", pattern=r"^(all|\d+(,\d+)*)$", description="devices to use: all, or their numbers")
    logical_devices: int = Field(1, ge=1, le=64, description="split the CPU into this many devices")
    run_dir: str | None = Field(None, description="folder of the run (default: runs/DATASET-TIME)")
    merged_from: list[str] | None = Field(None, description="runs that were merged into this run")
    extended_by: list[str] | None = Field(None, description="entities that `Run.extend` added after training")
    own_program: bool = Field(False, description="trained by another program with `fit`; only the model is known")

    @field_validator("model", mode="before")
    @classmethod
    def _is_a_scorer(cls, model: Any) -> str:
        if isinstance(model, type):
            return f"{model.__module__}:{model.__qualname__}"
        if str(model).lower() in MODELS:
            return str(model).lower()
        if ":" not in str(model):
            names = ", ".join(map(repr, MODELS))
            raise PydanticCustomError("model", f"Input should be {names} or MODULE:CLASS")
        return model

    @classmethod
    def create(cls, settings: Mapping[str, Any], where: str = "settings") -> "TrainConfig":
        """Checks `settings`; `where` says in errors where they came from."""
        try:
            # A key that is not a string, such as `1:` in YAML, is an unknown setting too.
            return cls(**{str(k): os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in settings.items()})
        except ValidationError as error:
            raise UsageError(f"{where}: {_explain(error)}".removeprefix(": ")) from None

    @property
    def full_softmax(self) -> bool:
        """Whether the loss is over all entities instead of sampled negatives."""
        return self.loss == _FULL

    @property
    def shared(self) -> bool:
        """Whether the triples of a chunk share their negatives."""
        return not self.full_softmax and self.negatives_mode.startswith("shared")

    @property
    def by_side(self) -> bool:
        """Whether negatives of the head and of the tail have a loss each."""
        return not self.full_softmax and self.negatives_mode.endswith("by-side")

    def without_effect(self) -> dict[str, str]:
        """Returns the settings that have no effect because of the others, with the reason."""
        return {name: reason for names, reason in self._rules() for name in names}

    def _rules(self) -> Iterator[tuple[tuple[str, ...], str]]:
        if self.recipe != AUTO:
            yield ("minutes",), "only the recipe auto has a time"
        if self.full_softmax:
            names = ("p", "negatives", "negatives_mode", "chunk", "filter_negatives")
            yield names, f"the loss {_FULL} takes all entities instead of negatives"
            yield ("table_dtype",), f"the loss {_FULL} updates the whole table in float32"
        else:
            reason = f"only the loss {_FULL} scores all entities"
            yield ("answers_per_query", "rare_weight", "pair_entities", "precision", "soft_labels"), reason
            if not self.shared:
                yield ("chunk",), f"the negatives_mode {self.negatives_mode} shares no negatives"
        if self.soft_labels is None or not self.full_softmax:
            yield ("soft_weight",), "there are no soft labels"
        if self.loss not in ("logistic", "margin"):
            yield ("margin",), f"a margin does not change the loss {self.loss}"
        if self.loss != "logistic":
            yield ("adversarial_temperature",), "only the loss logistic weighs negatives"
        if self.loss == "margin":
            yield ("label_smoothing",), "the loss margin has no target to smooth"
        if self.schedule != "cosine":
            yield ("warmup_epochs",), "only the schedule cosine has a warm-up"
        if self.strategy == "parameter-server" and self.average_epochs > 1:
            yield ("average_epochs",), "weights on parameter servers are not averaged"
        if not self.joint:
            yield ("alpha", "n3_pair", "pair_entities"), "joint is False, so there is no pair head"
        if self.model == "rotate":
            yield ("n3_pair",), "relations of RotatE are angles, which N3 leaves alone"
        if not self.eval_every:
            yield ("patience", "monitor", "eval_first"), "eval_every is 0, so validation triples are not ranked"
        if self.warm_start is None and self.entity_vectors is None:
            yield ("freeze_entities",), "neither warm_start nor entity_vectors is given"

    def check(self) -> None:
        """Raises a `UsageError` with the reason if settings contradict each other, or a given one has no effect."""
        for name, expected, reason in self._contradictions():
            raise UsageError(f"expected {expected}, got {getattr(self, name)}: {reason}")
        for name, reason in self.without_effect().items():
            if name in self.model_fields_set:
                raise UsageError(f"{name} {getattr(self, name)} has no effect here: {reason}; remove it")

    def _contradictions(self) -> Iterator[tuple[str, str, str]]:
        """Yields settings that are refused: the name, what is expected of it, and the reason."""
        full = self.full_softmax
        if self.strategy == "parameter-server":
            where = "with the strategy parameter-server"
            if full:
                yield "loss", f"another loss than {_FULL} {where}", "a step would need the whole entity table"
            reasons = {
                "warm_start": "the servers initialise their rows",
                "entity_vectors": "the servers initialise their rows",
                "jit_compile": "its tables are on other machines",
                "profile": "steps are not computed in this process",
            }
            for name, reason in reasons.items():
                if getattr(self, name):
                    yield name, f"no {name} {where}", reason
            if "tensorboard" in self.model_fields_set and self.tensorboard != "none":
                reason = "its logs need a step in one process; metrics.csv has the metrics"
                yield "tensorboard", f"tensorboard none {where}", reason
        if self.profile is not None:
            first, last = map(int, self.profile.split(":"))
            if first > last:
                yield "profile", "the first step of profile to be at most the last one", "nothing would be recorded"
        if self.model == "conve" and not full:
            reason = "its network for queries is trained against all entities only"
            yield "loss", f"loss to be {_FULL} with the model conve", reason
        if self.model == "conve" and not self.reciprocal:
            yield "reciprocal", "reciprocal to be True with the model conve", "it has queries for tails only"
        if self.reciprocal and not full and not self.by_side:
            expected = "negatives_mode by-side or shared-by-side with reciprocal relations"
            yield "negatives_mode", expected, "the sides of a triple have different scores"
        if self.schedule == "cosine" and self.warmup_epochs >= self.epochs:
            expected = f"fewer warmup_epochs than the {self.epochs} epochs"
            yield "warmup_epochs", expected, "the learning rate falls in the others"
        if self.weights is not None and full:
            yield "loss", f"another loss than {_FULL} with weights", "a query has one weight for all of its answers"
        if self.rare_weight < 1 and full and self.answers_per_query > 1:
            yield "answers_per_query", "answers_per_query 1 with rare_weight", "a query has one weight in the loss"
        for name in RECORDED:
            if getattr(self, name):
                yield name, f"no {name}", "the library notes it of a run, and nobody sets it"

    def effective(self) -> "TrainConfig":
        """Returns these settings without those that have no effect."""
        return self.create(self.model_dump(exclude_unset=True, exclude=set(self.without_effect())))

    def replace(self, **changes: Any) -> "TrainConfig":
        """Returns a copy with `changes`."""
        return self.create(self.model_dump(exclude_unset=True) | changes)

    def load_graph(self) -> "Graph":
        """Prepares its data set, or opens it if it is prepared.

        Raises:
            UsageError: there is no such data set, or its options do not apply.
            DataError: the data cannot be used.
        """
        from jobi_tf.datasets import load_graph

        names = ("split", "columns", "header", "weights")  # with any seed, a file has the same split
        return load_graph(self.dataset, **{name: getattr(self, name) for name in names})

    def write(self, path: Path) -> None:
        """Writes every known setting that has an effect as YAML; not the folder, since a run may be moved."""
        settings = self.model_dump(exclude={"run_dir", *self.without_effect()}, exclude_unset=self.own_program)
        path.write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), encoding="utf-8")


class _Loader(yaml.SafeLoader):
    """Refuses a mapping with a repeated key, of which YAML would silently use the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.composer.ComposerError(None, None, f"found the key {key.value!r} twice", key.start_mark)
            seen.add(key.value)
        return node


def read_settings(path: Path) -> dict[str, Any]:
    """Reads a YAML file of settings; raises a `UsageError` unless it is a mapping with each key once."""
    try:
        settings = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise UsageError(f"expected a YAML file of settings: {path}: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"expected YAML in {path}{line}: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # also of a date such as 2026-02-30
        raise UsageError(f"expected YAML in {path}: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        came = "an empty file" if settings is None else f"a {type(settings).__name__}"
        raise UsageError(f"expected `key: value` lines in {path}, got {came}")
    return settings


class StrictModel(BaseModel):
    """A part of a YAML file, in which an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SettingsFile(StrictModel):
    """A YAML file about settings, such as a search space: one of the user's, or one that comes with the library."""

    built_in_folder: ClassVar[Path]
    _name: str = PrivateAttr("")
    _where: str = PrivateAttr("")

    @property
    def name(self) -> str:
        """The name of the file, without suffix."""
        return self._name

    @classmethod
    def built_in(cls) -> dict[str, Path]:
        """Returns the files that come with the library, by name."""
        return {path.stem: path for path in sorted(cls.built_in_folder.rglob("*.yaml"), key=lambda path: path.stem)}

    @classmethod
    def read(cls, source: str | Path) -> Self:
        """Reads a file, or the built-in one of that name, which wins over a path.

        Raises:
            UsageError: there is none, or it is invalid; the message has the file, the key and the reason.
        """
        path = cls.built_in().get(str(source), Path(source))
        if not path.is_file():
            raise UsageError(f"expected a YAML file or one of {', '.join(cls.built_in())}, got {str(source)!r}")
        return cls.parse(read_settings(path), path.stem, str(source))

    @classmethod
    def parse(cls, content: Mapping[str, Any], name: str, where: str) -> Self:
        """Checks the content of a file; `where` names it in errors, each a `UsageError` with the key."""
        try:
            parsed = cls(**{str(key): value for key, value in content.items()})
        except ValidationError as error:
            raise UsageError(f"{where}: {validation_message(error)}") from None
        parsed._name, parsed._where = name, where
        return parsed


class Recipe(SettingsFile):
    """A YAML file with settings; those that come with the library are in `jobi_tf/training/recipes`."""

    built_in_folder: ClassVar[Path] = Path(__file__).parent / "recipes"

    description: str
    settings: dict[str, Any] = Field(min_length=1)

    @field_validator("settings")
    @classmethod
    def _fields_of_config(cls, settings: dict[str, Any]) -> dict[str, Any]:
        for name in ("dataset", "recipe", "run_dir"):
            if name in settings:
                raise ValueError(f"expected no {name} in a recipe")
        config = TrainConfig.create({"dataset": "any"} | settings, "")
        config.check()
        return {name: getattr(config, name) for name in settings}


def with_recipe(config: TrainConfig) -> TrainConfig:
    """Returns the settings with those of their recipe, if they name one; settings that were given win.

    Settings of the recipe that have no effect beside the given ones are left out.

    Raises:
        UsageError: there is no such recipe, or it is invalid.
    """
    if config.recipe in (None, AUTO):
        return config
    if not Path(config.recipe).is_file() and config.recipe not in (names := [AUTO, *Recipe.built_in()]):
        raise UsageError(f"expected recipe to be a YAML file or one of {', '.join(names)}, got {config.recipe!r}")
    given = config.model_dump(exclude_unset=True)
    return overridden(Recipe.read(config.recipe).settings, given)


def overridden(settings: dict[str, Any], given: dict[str, Any]) -> TrainConfig:
    """Returns `settings` with `given` ones in their place, without those that have no effect beside the given ones."""
    config = TrainConfig.create(settings | given)
    idle = config.without_effect().keys() - given.keys()
    return TrainConfig.create({name: x for name, x in (settings | given).items() if name not in idle})


def unknown_setting(name: str) -> str:
    """Returns what to say about a name that is no setting."""
    near = [SYNONYMS[name]] if name in SYNONYMS else get_close_matches(name, TrainConfig.model_fields, n=1)
    return f"unknown setting {name!r}" + (f"; did you mean {near[0]}?" if near else ": see `jobi-tf train --help`")


def _explain(error: ValidationError) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return unknown_setting(name)
    if problem["type"] == "string_pattern_mismatch":
        expected = {
            "devices": "all, or numbers such as 0,1",
            "checkpoint_every": "epochs such as 5, or minutes such as 10m",
            "tensorboard": f"all, none, or some of {','.join(TENSORBOARD)}",
            "profile": "the first and the last step, such as 10:20 (in YAML '10:20', with quotes)",
        }
        return f"expected {name} to be {expected[name]}, got {problem['input']!r}"
    return validation_message(error)
