"""What TensorBoard shows of a run, each part of which can be left out."""

import io
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.plugins import projector
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalars
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.hparams import plugin_data_pb2

from jobi_tf.data.batches import number_of_queries
from jobi_tf.data.graph import Graph
from jobi_tf.data.negatives import NegativeSampler, can_filter
from jobi_tf.data.occurrences import SIDES, TAIL, KnownAnswers, Occurrences, entity_degrees
from jobi_tf.datasets.statistics import CATEGORIES, entity_types, relation_categories
from jobi_tf.evaluation.answers import best_answers
from jobi_tf.evaluation.calibration import calibrate_sample, score_sample
from jobi_tf.evaluation.metrics import BETTER_IF_HIGHER, METRICS
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.files import written_beside
from jobi_tf.models.jobi import JoBi
from jobi_tf.tables import markdown
from jobi_tf.training.assembly import build_batches, losses_of
from jobi_tf.training.config import RECORDED, TENSORBOARD, TrainConfig
from jobi_tf.training.recording import Training
from jobi_tf.training.run_folder import describe_environment
from jobi_tf.workers import is_chief

SAMPLE = 200  # triples, or queries, whose scores and gradients are shown
SHOWN_QUERIES, SHOWN_ANSWERS = 5, 5
MOST_VECTORS = 20_000  # for the projector and norms: no copy of a large table is made
MOST_NUMBERS = 400_000  # in a histogram, for which TensorFlow takes 240 bytes a number
MOST_TRIPLES = 5_000_000  # of training, among which negatives are looked up

# Settings that do not change the model.
_NO_HPARAMS = {
    *("columns", "header", "weights", "split", "run_dir", "checkpoint_every"),
    *("tensorboard", "profile", "strategy", "devices", "logical_devices", *RECORDED),
}
_FIRST_HPARAMS = {"dataset", "model", "joint", "dim", "learning_rate"}  # the columns that are shown first
_OF_BEST = ("mrr", "hits@10")  # metrics of the epoch that is kept
_VALUES = ("name", "value")
_TAGS = {
    "loss": "loss/total",
    "triple_loss": "loss/triple",
    "pair_loss": "loss/pair",
    "learning_rate": "training/learning rate",
    "triples_per_second": "speed/triples per second",
    "seconds": "speed/seconds of an epoch",
}


class TensorBoard(keras.callbacks.Callback):
    """Writes the logs of a training for TensorBoard; the step of all that it writes is the number of the epoch, from 1.

    Every epoch has the numbers in `logs`. What needs more time is written only after epochs whose validation triples
    are ranked: metrics by side and category of relations, predictions, histograms, and what a sample of training and of
    validation triples shows of scores, gradients and negatives.

    Of several workers the chief writes the logs. The others compute the same, since what TensorFlow computes under the
    strategy may need all workers, and write to a temporary folder.
    """

    def __init__(self, training: Training):
        super().__init__()
        self.training = training
        parts = training.config.tensorboard
        self.parts = set(TENSORBOARD if parts == "all" else parts.split(","))
        first, last = map(int, (training.config.profile or "0:-1").split(":"))
        self._profiled, self._profiling = range(first, last + 1), False
        self._epoch = training.done
        self._temporary = None if is_chief(training.strategy) else tempfile.TemporaryDirectory()
        self.logs = Path(self._temporary.name) if self._temporary else training.folder.logs

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Writes what is known before training, at the first call."""
        if hasattr(self, "_writer"):
            return
        training = self.training
        forget_after(self.logs, training.done)
        self._writer = tf.summary.create_file_writer(str(self.logs))
        self._steps = training.done * training.steps + training.first_step
        used = {"scalars", "histograms"} & self.parts if training.config.eval_every else set()
        used |= {"graph"} & self.parts if not training.done else set()
        self._sample = Sample(training) if used else None
        with self._writer.as_default(step=training.done):
            if "hparams" in self.parts:
                _write_hparams(training.config)
            if training.done:
                return
            if "scalars" in self.parts:
                tf.summary.experimental.write_raw_pb(_layout().SerializeToString(), step=0)
            if "text" in self.parts:
                tf.summary.text("settings", markdown(_VALUES, training.config.model_dump().items()))
                environment = describe_environment()
                environment |= {"command": shlex.join(environment["command"]), **environment.pop("versions")}
                tf.summary.text("environment", markdown(_VALUES, environment.items()))
            if "graph" in self.parts and self._sample:
                self._sample.write_graph(self.model)

    def on_train_batch_begin(self, batch: int, logs: dict | None = None) -> None:
        """Starts the profiler, if it is time."""
        after = self._steps + self.model.steps_per_execution  # steps that are computed together
        if not self._profiling and self._steps < self._profiled.stop and after > self._profiled.start:
            tf.profiler.experimental.start(str(self.logs))
            self._profiling = True

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Stops the profiler, if it is time."""
        self._steps += self.model.steps_per_execution
        if self._profiling and self._steps >= self._profiled.stop:
            self._stop_profiler()

    def on_epoch_end(self, epoch: int, logs: dict) -> None:
        """Writes the epoch."""
        self._epoch = epoch + 1
        with self._writer.as_default(step=self._epoch):
            if "scalars" in self.parts:
                for name, value in logs.items():
                    tf.summary.scalar(_tag(name), value)
                if self.training.best.best_epoch == self._epoch:
                    for name in _OF_BEST:
                        tf.summary.scalar(f"best epoch/{METRICS[name]}", logs[f"val_{name}"])
            if (ranking := self.training.ranking) and ranking.due:
                self._write_ranking(ranking.ranks)
        self._writer.flush()

    def on_train_end(self, logs: dict | None = None) -> None:
        """Writes the embeddings for the projector, and the images."""
        if self._profiling:
            self._stop_profiler()
        if "images" in self.parts:
            with self._writer.as_default(step=self._epoch):
                write_images(self.model, self.training.graph, self.training.config)
        if "projector" in self.parts:
            write_projector(self.logs, self.model, self.training.graph, self._categories)
        self._writer.flush()

    def _stop_profiler(self) -> None:
        tf.profiler.experimental.stop()
        self._profiling = False

    def _write_ranking(self, ranks: Sequence[Ranks]) -> None:
        model, graph = self.model, self.training.graph
        if "scalars" in self.parts:
            for tag, value in ranking_scalars(self._categories[graph.valid[:, 1]], ranks).items():
                tf.summary.scalar(tag, value)
        for name, table in _tables(model).items():
            evenly_spaced = tf.range(0, table.shape[0], -(-table.shape[0] // MOST_VECTORS))
            rows = tf.cast(tf.gather(table.value, evenly_spaced), tf.float32)  # a slice would copy the table
            if "scalars" in self.parts:
                tf.summary.scalar(f"norms of embeddings/{name}", tf.reduce_mean(tf.norm(rows, axis=1)))
            if "histograms" in self.parts:
                _write_histogram(f"embeddings/{name}", rows)
        if self._sample:
            self._sample.write(model, self.parts)
        if "text" in self.parts:
            tf.summary.text("predictions", predictions(model, graph, *self._shown))

    @cached_property
    def _categories(self) -> np.ndarray:
        return relation_categories(self.training.graph)

    @cached_property
    def _shown(self) -> tuple[np.ndarray, KnownAnswers]:
        """Some validation triples, and the known answers to their tail queries."""
        triples = np.asarray(self.training.graph.valid)
        triples = triples[:: max(1, len(triples) // SHOWN_QUERIES)][:SHOWN_QUERIES]
        return triples, KnownAnswers.of_graph(self.training.graph, ("train", "valid"), triples, TAIL)


class Sample:
    """What a few training and validation triples show: the same ones, with the same negatives, in every epoch.

    Negatives that are training triples are marked, also where training does not mark them, unless the graph is large.
    """

    def __init__(self, training: Training):
        config, graph = training.config, training.graph
        self._queries, self._marked = config.full_softmax, config.filter_negatives
        self._weights = {name: weight for name, (_, weight) in losses_of(config).items()}
        few = len(graph.train) <= MOST_TRIPLES and can_filter(graph.num_entities, graph.num_relations)
        self._counts_known = not self._queries and (few or config.filter_negatives)
        options: dict[str, Any] = {}
        if not self._queries:  # one sampler for both splits, whose tables are as large as the graph
            known = graph.train if self._counts_known else None
            options["sampler"] = NegativeSampler(Occurrences.of_graph(graph), config.negatives, config.p, known)
        self.batches, multiple = {}, config.chunk if config.shared else 1
        for split in ("train", "valid"):
            rows = len(graph.split(split))
            if self._queries:
                rows = number_of_queries(graph, split, config.answers_per_query)
            size = min(max(SAMPLE, multiple), config.batch_size or SAMPLE, rows)
            size -= size % multiple
            if size:
                batches = build_batches(config, graph, split=split, batch_size=size, **options)
                self.batches[split] = keras.utils.unpack_x_y_sample_weight(next(iter(batches.take(1))))
        # `partial` makes a function for each training. TensorFlow would warn that a common one is traced too often.
        self._look = tf.function(partial(self._measured), autograph=False)

    def write_graph(self, model: JoBi) -> None:
        """Writes the graph of the model's scores, losses and gradients."""
        tf.summary.graph(self._look.get_concrete_function(model, *self.batches["train"]).graph)

    def write(self, model: JoBi, parts: set[str]) -> None:
        """Writes losses, gradients, scores and negatives of both samples."""
        for split, batch in self.batches.items():
            labels, (outputs, losses, norms) = batch[1], self._look(model, *batch)
            answers = batch[0]["answers"] if self._queries else labels["triple"]  # which may be with soft labels
            if "scalars" in parts:
                scalars = {f"loss of a {split} sample/{name}": value for name, value in losses.items()}
                if "pair" in outputs:
                    pairs = (tf.reshape(x["pair"], [-1]) for x in (labels, outputs))
                    scalars[f"AUC of the pair head/{split}"] = keras.metrics.AUC(from_logits=True)(*pairs)
                if split == "train":
                    scalars |= {f"norms of gradients/{name}": value for name, value in norms.items()}
                    scalars |= self._shares(labels)
                for tag, value in scalars.items():
                    tf.summary.scalar(tag, value)
            if "histograms" in parts:
                for name, scores in self._scores(outputs["triple"], answers).items():
                    _write_histogram(f"scores of a {split} sample/{name}", scores)

    def _measured(
        self, model: JoBi, inputs: Mapping[str, tf.Tensor], labels: Mapping[str, tf.Tensor], weights: Any
    ) -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor], dict[str, tf.Tensor]]:
        """Returns the scores of each head, their losses, and the norms of the gradients of all weights."""
        if not (self._queries or self._marked):
            labels = {**labels, "triple": tf.maximum(labels["triple"], 0)}
        variables = model.trainable_variables
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=False)
            losses = {x: model.loss[x](labels[x], scores, weights and weights[x]) for x, scores in outputs.items()}
            weighted = [self._weights[name] * loss for name, loss in losses.items()]
            total = tf.add_n([*weighted, *model.losses])
        # Of several devices, the first one has read its own copies.
        copies = [tf.distribute.get_strategy().experimental_local_results(x.value)[0] for x in variables]
        names = {id(table): name for name, table in _tables(model).items()}
        norms = {
            names.get(id(x), x.path): tf.linalg.global_norm([gradient])
            for x, gradient in zip(variables, tape.gradient(total, copies), strict=True)
            if gradient is not None
        }
        return outputs, losses, norms

    def _shares(self, labels: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns which shares of the negatives are true by accident, and seen with the relation."""
        shares = {}
        if self._counts_known:
            shares["negatives/share that are training triples"] = labels["triple"][..., 1:] < 0
        if "pair" in labels and not self._queries:
            shares["negatives/share seen with the relation"] = labels["pair"][..., 1:] > 0
        return {tag: tf.reduce_mean(tf.cast(chosen, tf.float32)) for tag, chosen in shares.items()}

    def _scores(self, scores: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the triple head's scores of positives and of negatives."""
        if not self._queries:
            return {"positives": scores[..., 0], "negatives": tf.boolean_mask(scores, labels == 0)}
        answers = tf.gather(scores, tf.maximum(labels, 0), batch_dims=1)
        return {"positives": tf.boolean_mask(answers, labels >= 0), "all entities": scores}


def forget_after(logs: Path, epoch: int) -> None:
    """Removes from the logs of a run what was written after an epoch, since these epochs are trained again."""
    for path in sorted(logs.glob("events.out.tfevents.*")):
        records = [*RawEventFileLoader(str(path)).Load()]
        kept = [x for x in records if tf.compat.v1.Event.FromString(x).step <= epoch]
        if len(kept) < len(records):
            with written_beside(path) as beside, tf.io.TFRecordWriter(str(beside)) as writer:
                for record in kept:
                    writer.write(record)


def write_scalars(logs: Path, values: Mapping[str, float], epoch: int) -> None:
    """Adds scalars to the logs of a run."""
    with tf.summary.create_file_writer(str(logs)).as_default(step=epoch):
        for tag, value in values.items():
            tf.summary.scalar(tag, value)


def write_text(logs: Path, tag: str, text: str) -> None:
    """Adds a text in Markdown to the logs of a run."""
    with tf.summary.create_file_writer(str(logs)).as_default(step=0):
        tf.summary.text(tag, text)


def ranking_scalars(categories: np.ndarray, ranks: Sequence[Ranks]) -> dict[str, float]:
    """Returns metrics by side and by category, given the category of each triple, str [N], and N ranks a side."""
    every, category = Ranks.concatenate(list(ranks)), np.tile(categories, len(SIDES))
    scalars = {"validation/MRR of ties, optimistic minus pessimistic": every.ties_gap()}
    groups = [("side", f"{side}s", own) for side, own in zip(SIDES, ranks, strict=True)]
    groups += [("category", kind, every[category == kind]) for kind in CATEGORIES if kind in categories]
    for what, group, chosen in groups:
        metrics = rank_metrics(chosen.ranks())
        scalars |= {f"validation by {what}/{METRICS[x]}, {group}": metrics[x] for x in BETTER_IF_HIGHER}
    return scalars


def predictions(model: JoBi, graph: Graph, triples: np.ndarray, known: KnownAnswers) -> str:
    """Returns the best tails for some triples as a Markdown table; known answers are bold."""
    best = best_answers(model, known, triples, TAIL, SHOWN_ANSWERS)
    rows = []
    for (head, relation, tail), answers, facts in zip(triples, best.entities, best.known, strict=True):
        names = [graph.entities[x] for x in answers]
        shown = ", ".join(f"**{name}**" if fact else name for name, fact in zip(names, facts, strict=True))
        rows.append((graph.entities[head], graph.relations[relation], graph.entities[tail], shown))
    return markdown(("head", "relation", "tail", "best tails (known ones are bold)"), rows)


def write_images(model: JoBi, graph: Graph, config: TrainConfig) -> None:
    """Writes the reliability diagram and the precision-recall curve of probabilities, if matplotlib is installed.

    They are those of validation triples and of corruptions of them on each side; see `calibrate_sample`.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    scored = score_sample(lambda x: model.score(x).numpy(), graph, config.p, config.seed)
    calibration = calibrate_sample(scored)
    triples, corruptions = int(scored.true.sum()), int((~scored.true).sum())
    order = np.argsort(-scored.scores)
    last = np.diff(scored.scores[order], append=-np.inf) != 0  # of equal scores, which are found together
    found, drawn = np.cumsum(scored.true[order])[last], np.arange(1, len(order) + 1)[last]
    reliability, precision = (Figure(figsize=(5, 5), layout="constrained") for _ in range(2))
    axes = reliability.subplots()
    axes.plot([x.probability for x in calibration.bins], [x.true for x in calibration.bins], marker="o")
    axes.plot([0, 1], [0, 1], color="gray", linestyle="--")
    title = f"calibration error {calibration.ece_after:.3f}"
    axes.set(title=title, xlabel="probability", ylabel="share that is true")
    axes = precision.subplots()
    axes.plot(found / triples, found / drawn)
    axes.set(title=f"{triples:,} triples, {corruptions:,} corruptions", xlabel="recall", ylabel="precision")
    for name, figure in (("reliability", reliability), ("precision and recall", precision)):
        figure.axes[0].set(xlim=(0, 1), ylim=(0, 1.02))
        figure.axes[0].grid(alpha=0.3)
        file = io.BytesIO()
        figure.savefig(file, format="png")
        tf.summary.image(f"probabilities/{name}", tf.io.decode_png(file.getvalue(), channels=4)[None])


def write_projector(logs: Path, model: JoBi, graph: Graph, categories: np.ndarray) -> None:
    """Writes the embeddings of the most frequent entities, and of the relations of the triple head, with their names.

    An entity also has its number of training triples, and the relation and side that it occurs with most often; a
    relation its number of training triples and its category, out of `categories`, str [relations].
    """
    degrees = entity_degrees(graph.train, graph.num_entities)
    entities = np.argsort(-degrees, kind="stable")[:MOST_VECTORS]
    relations = np.arange(min(graph.num_relations, MOST_VECTORS))
    triples = np.bincount(graph.train[:, 1], minlength=graph.num_relations)
    config, vectors = projector.ProjectorConfig(), {}
    for name, table, ids, names, counts, column, values in (
        ("entities", model.entities, entities, graph.entities, degrees, "type", entity_types(graph, entities)),
        ("relations", model.heads[0].relations, relations, graph.relations, triples, "category", categories[relations]),
    ):
        vectors[name] = tf.Variable(tf.cast(tf.gather(table.table.value, ids), tf.float32))
        rows = [("name", "triples", column), *((names[i], counts[i], x) for i, x in zip(ids, values, strict=True))]
        path = logs / f"{name}.tsv"
        with written_beside(path) as beside:
            lines = ["\t".join(str(x).replace("\t", " ") for x in row) + "\n" for row in rows]
            beside.write_text("".join(lines), encoding="utf-8")
        config.embeddings.add(tensor_name=f"{name}/.ATTRIBUTES/VARIABLE_VALUE", metadata_path=path.name)
    tf.train.Checkpoint(**vectors).save(str(logs / "projector"))
    projector.visualize_embeddings(str(logs), config)


def _tables(model: JoBi) -> dict[str, keras.Variable]:
    return {"entities": model.entities.table} | {f"relations, {x.name}": x.relations.table for x in model.heads}


def _tag(name: str) -> str:
    if name.startswith("val_"):
        return f"validation/{METRICS.get(name.removeprefix('val_'), name)}"
    return _TAGS.get(name, name if "/" in name else f"other/{name}")


def _layout() -> Any:
    """Returns the charts of curves that belong together, for the tab Custom Scalars."""

    by_part = {
        f"{METRICS[name]} by {kind}": f"validation by {kind}/{METRICS[name]}, .*"
        for kind in ("side", "category")
        for name in ("mrr", "hits@10")
    }
    tabs = {
        "loss": {"training: all, triple and pair": "loss/.*", "a sample of the splits": "loss of a .*"},
        "validation": {"MRR and Hits": "validation/(MRR|Hits@.*)$", **by_part},
        "inside": {
            "norms of gradients": "norms of gradients/.*",
            "norms of embeddings": "norms of embeddings/.*",
            "negatives": "negatives/.*",
            "AUC of the pair head": "AUC of the pair head/.*",
        },
    }
    layout = layout_pb2.Layout()
    for title, charts in tabs.items():
        category = layout.category.add(title=title)
        for name, tag in charts.items():
            category.chart.add(title=name).multiline.tag.append(tag)
    return custom_scalars.pb(layout)


def _write_histogram(tag: str, numbers: tf.Tensor) -> None:
    """Writes a histogram of at most `MOST_NUMBERS` of the numbers, evenly spaced."""
    numbers = tf.reshape(numbers, [-1])
    tf.summary.histogram(tag, numbers[:: 1 + tf.size(numbers) // MOST_NUMBERS])


def _write_hparams(config: TrainConfig) -> None:
    shown = [
        hparams.Metric(f"{group}/{METRICS[name]}", display_name=f"{split} {METRICS[name]}")
        for group, split in {"best epoch": "validation", "test": "test"}.items()
        for name in _OF_BEST
    ]
    left_out = _NO_HPARAMS | config.without_effect().keys()
    values = {
        key: value if isinstance(value, (bool, int, float, str)) else "default"
        for key, value in config.model_dump(exclude=left_out).items()
    }
    # The columns of all settings, since TensorBoard takes those of any one run; those marked as different come first.
    columns = hparams.hparams_config_pb(
        [hparams.HParam(x) for x in TrainConfig.model_fields if x not in _NO_HPARAMS], shown
    )
    plugin_data = columns.value[0].metadata.plugin_data
    content = plugin_data_pb2.HParamsPluginData.FromString(plugin_data.content)
    for column in content.experiment.hparam_infos:
        column.differs = column.name in _FIRST_HPARAMS
    plugin_data.content = content.SerializeToString()
    tf.summary.experimental.write_raw_pb(columns.SerializeToString(), step=0)
    hparams.hparams(values, trial_id="")  # named by the folder, also after it was renamed or copied
