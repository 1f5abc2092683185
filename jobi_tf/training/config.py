"""All settings of a training run, in one frozen object that reads from and writes to YAML."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jobi_tf.errors import UsageError

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph


class TrainConfig(BaseModel):
    """Settings of a training run. Field names are the options of `jobi-tf train`, with `_` for `-`.

    Raises:
        UsageError: from `create` and `read`, if a setting is unknown, missing or out of its range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(description="name of a data set, or a folder or file of triples")
    split: str | None = Field(None, description="shares of train/valid/test for one file of triples, as 0.8/0.1/0.1")
    columns: str | None = Field(None, description="names of the head, relation and tail columns, as a,b,c")
    header: bool | None = Field(None, description="whether files of triples begin with a header (default: look)")
    model: Literal["complex", "distmult", "simple", "rescal", "tucker", "transe", "rotate", "typecomplex", "conve"] = (
        Field("complex", description="score function; conve goes with the loss full-softmax and reciprocal relations")
    )
    reciprocal: bool = Field(
        False, description="ask for heads by a second half of each relation (full-softmax, or negatives by side)"
    )
    joint: bool = Field(True, description="train the pair head too")
    p: float = Field(0.3, ge=0, le=1, description="share of negatives drawn from entities seen with the relation")
    alpha: float = Field(1.0, ge=0, allow_inf_nan=False, description="weight of the pair loss")
    pair_entities: int | None = Field(
        None,
        ge=1,
        description="full-softmax: entities that the pair loss looks at in a step, all in turn (default: all in each)",
    )
    dim: int = Field(200, ge=1, description="embedding size d; ComplEx, SimplE and RotatE store 2d real numbers")
    loss: Literal["softmax", "full-softmax", "logistic", "margin"] = Field(
        "softmax", description="loss of the triple head: over sampled negatives, or full-softmax over all entities"
    )
    margin: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="margin of the loss margin (default: 1); added to scores by logistic (default: 0, 6 for distances)",
    )
    adversarial_temperature: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="logistic: weigh negatives by a softmax of this times their scores"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="share of the triple head's target that is spread")
    n3: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight of the N3 penalty on a triple's embeddings")
    n3_pair: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="weight of the N3 penalty on its relation in the pair head"
    )
    l2: float = Field(0.0, ge=0, allow_inf_nan=False, description="weight of the L2 penalty on all of these")
    entity_dropout: float = Field(0.0, ge=0, lt=1, description="share of a known entity's numbers left out of a query")
    relation_dropout: float = Field(0.0, ge=0, lt=1, description="share of a relation's numbers left out of a query")
    relation_prediction: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="weight of the loss of telling a triple's relation from all others"
    )
    batch_size: int | None = Field(
        None,
        ge=1,
        description="triples a step, over all devices (default: 1000, fewer for small graphs); for full-softmax "
        "queries (default: 500)",
    )
    negatives: int = Field(50, ge=1, description="negatives a triple")
    negatives_mode: Literal["own", "by-side", "shared", "shared-by-side"] = Field(
        "own",
        description="negatives of each triple's own: all in one loss, or by-side, with one loss for those of its head "
        "and one for those of its tail; or shared by the triples of a chunk, which is faster, in one loss or by side",
    )
    chunk: int = Field(10, ge=1, description="triples that share their negatives, where they are shared")
    filter_negatives: bool = Field(False, description="leave negatives that are training triples out of the loss")
    learning_rate: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="learning rate (default for Adam: 0.0008; 0.0012 for shared negatives; for Adagrad: 0.1)",
    )
    optimizer: Literal["adam", "adagrad"] = Field("adam", description="optimizer, which touches only rows of the batch")
    schedule: Literal["constant", "cosine", "exponential"] = Field(
        "constant", description="learning rate over all epochs: constant, to 0 by cosine, or to a hundredth"
    )
    epochs: int = Field(100, ge=1, description="most epochs to train")
    eval_every: int = Field(5, ge=0, description="epochs between rankings of the validation split; 0: never")
    monitor: Literal["mrr", "hits@1", "hits@3", "hits@10"] = Field(
        "hits@10", description="metric of the validation split by which the best epoch is kept"
    )
    patience: int = Field(2, ge=1, description="rankings in which it gets no better until training stops")
    seed: int = Field(0, ge=0, lt=2**62, description="seed of embeddings, shuffles and negatives")
    devices: str = Field("all", pattern=r"^(all|\d+(,\d+)*)$", description="devices to train on: all, or their numbers")
    logical_devices: int = Field(1, ge=1, le=64, description="split the CPU into that many devices")
    run_dir: str | None = Field(None, description="folder of the run (default: runs/DATASET-TIME)")

    @classmethod
    def create(cls, settings: Mapping[str, Any], where: str = "settings") -> "TrainConfig":
        """Checks `settings`; `where` tells in messages where they came from."""
        try:
            # A key that is no string, such as `1:` in YAML, is an unknown setting too.
            return cls(**{str(k): os.fspath(v) if isinstance(v, os.PathLike) else v for k, v in settings.items()})
        except ValidationError as error:
            raise UsageError(f"{where}: {_explain(error, cls)}") from None

    @property
    def shared(self) -> bool:
        """Whether the triples of a chunk share their negatives."""
        return self.loss != "full-softmax" and self.negatives_mode.startswith("shared")

    @property
    def by_side(self) -> bool:
        """Whether negatives of the head and of the tail have a loss each."""
        return self.loss != "full-softmax" and self.negatives_mode.endswith("by-side")

    def refuse_without_effect(self) -> None:
        """Looks for settings that do not go with the model, or that, other than their defaults, are without effect.

        Raises:
            UsageError: there is one; the message has the reason.
        """
        self._refuse_unsuited()
        for names, has_effect, reason in (
            (_OF_NEGATIVES, self.loss != "full-softmax", "the loss full-softmax takes all entities, not negatives"),
            (("margin",), self.loss in ("logistic", "margin"), "a softmax stays the same when all scores move alike"),
            (("adversarial_temperature",), self.loss == "logistic", "it weighs the negatives of the loss logistic"),
            (("label_smoothing",), self.loss != "margin", "the loss margin has no target to smooth"),
            (("n3_pair", "pair_entities"), self.joint, "there is no pair head"),
            (("pair_entities",), self.loss == "full-softmax", "the pair loss looks at a triple's negatives"),
            (
                ("reciprocal",),
                self.loss == "full-softmax" or self.by_side,
                "reciprocal relations give a triple a score for each side, and such negatives have one loss for both; "
                "negatives_mode by-side and the loss full-softmax ask each side by itself",
            ),
        ):
            for name in () if has_effect else names:
                default, value = type(self).model_fields[name].default, getattr(self, name)
                if value != default:
                    raise UsageError(f"expected {name} to be left at {default}, got {value}: {reason}")

    def _refuse_unsuited(self) -> None:
        if self.model != "conve":
            return
        for name, needed, reason in (
            ("loss", "full-softmax", "a query goes through a net, which pays only when it is scored with all entities"),
            ("reciprocal", True, "it has queries for tails only, and reciprocal relations ask for heads as for tails"),
        ):
            if getattr(self, name) != needed:
                raise UsageError(
                    f"expected {name} to be {needed} with the model conve, got {getattr(self, name)}: {reason}"
                )

    def replace(self, **changes: Any) -> "TrainConfig":
        """Returns a copy with `changes`."""
        return self.create(self.model_dump() | changes)

    def load_graph(self) -> "Graph":
        """Prepares its data set, or opens it where it is prepared.

        Raises:
            UsageError: there is no such data set, or its options cannot work.
            DataError: the data cannot be used.
        """
        from jobi_tf.datasets import load_graph

        columns = self.columns.split(",") if self.columns else None
        return load_graph(self.dataset, split=self.split, columns=columns, header=self.header, seed=self.seed)

    def write(self, path: Path) -> None:
        """Writes every setting as YAML, but for the folder, since a run may be moved."""
        text = yaml.safe_dump(self.model_dump(exclude={"run_dir"}), sort_keys=False, allow_unicode=True)
        path.write_text(text, encoding="utf-8")


_OF_NEGATIVES = ("p", "negatives", "negatives_mode", "chunk", "filter_negatives")


def read_settings(path: Path) -> dict[str, Any]:
    """Reads a YAML file of settings.

    Raises:
        UsageError: the file is missing, is not YAML, or holds no mapping.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"expected a YAML file of settings: {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"expected YAML in {path}: {' '.join(str(error).split())}") from None
    if not isinstance(settings, dict):
        came = "an empty file" if settings is None else f"a {type(settings).__name__}"
        raise UsageError(f"expected `key: value` lines in {path}, got {came}")
    return settings


def parse_assignment(text: str) -> tuple[str, Any]:
    """Splits `key=value`, the value being YAML.

    Raises:
        UsageError: there is no `=`, or the value is not YAML.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"expected KEY=VALUE after --set, got {text!r}")
    try:
        return key.strip().replace("-", "_"), yaml.safe_load(value)
    except yaml.YAMLError:
        raise UsageError(f"expected a YAML value after {key}=, got {value!r}") from None


def _explain(error: ValidationError, config: type[BaseModel]) -> str:
    """Returns the first problem in one sentence."""
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    if problem["type"] == "extra_forbidden":
        return f"expected one of the settings {', '.join(config.model_fields)}, got {name!r}"
    if problem["type"] == "missing":
        return f"expected the setting {name!r}, which is missing"
    if problem["type"] == "string_pattern_mismatch":
        return f"expected {name} to be all, or numbers such as 0,1, got {problem['input']!r}"
    message = problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"expected {name} to be {message}, got {problem['input']!r}"
