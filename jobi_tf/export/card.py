"""The model card: what an export is, how good it is, and where its limits are."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.evaluation.metrics import METRICS, best_row
from jobi_tf.export.calibration import BINS

if TYPE_CHECKING:
    from jobi_tf.export.export import Exported, Trainable

LEFT_OUT = {"dataset", "run_dir", "devices", "logical_devices"}  # settings of the machine, not of the model
MEANINGS = {
    "serving_default": "scores of triples",
    "score_ids": "scores of triples of ids, as in `entities.tsv` and `relations.tsv`",
    "predict_tails": "the best tails of (head, relation, ?), best first; `seen` marks known facts",
    "predict_heads": "the best heads of (?, relation, tail), likewise",
    "predict_new_tails": "the best tails without known facts",
    "predict_new_heads": "the best heads without known facts",
    "embed": "embeddings of entities",
}


def model_card(run: "Trainable", exported: "Exported", contract: Mapping[str, Any]) -> str:
    """Returns the card of an export, in Markdown."""
    parts = [
        _introduction(run, exported),
        _data(run.graph),
        _settings(run.config.model_dump()),
        _quality(run),
        _probabilities(exported),
        _storage(exported),
        _limits(run.graph, exported, run.model.reciprocal),
        _signatures(exported, contract),
    ]
    return "\n".join(parts)


def _introduction(run: "Trainable", exported: "Exported") -> str:
    model, width = run.model, run.model.entities.table.shape[1]
    training = "jointly with a pair head (JoBi)" if model.joint else "without a pair head"
    relations = ", with reciprocal relations" if model.reciprocal else ""
    return (
        f"# {run.graph.name}, version {exported.version}\n\n"
        f"Ranks the entities that complete a triple of the knowledge graph {run.graph.name}: {model.scorer.name} "
        f"embeddings of {width} real numbers{relations}, trained {training} by jobi-tf. The export holds the triple "
        "head only.\n"
    )


def _data(graph: Graph) -> str:
    unseen = graph.num_entities - int(graph.seen_in_training.sum())
    counts = {"entities": graph.num_entities, "entities without a training triple": unseen}
    counts |= {"relations": graph.num_relations}
    counts |= {f"{name} triples": len(graph.split(name)) for name in SPLITS}
    return "## Data\n\n" + _table(("", "number"), [(name, f"{count:,}") for name, count in counts.items()])


def _settings(config: Mapping[str, Any]) -> str:
    rows = [(name, f"{value}") for name, value in config.items() if value is not None and name not in LEFT_OUT]
    return "## Training settings\n\n" + _table(("setting", "value"), rows)


def _quality(run: "Trainable") -> str:
    rows = zip(*run.history.values(), strict=True)
    epochs = (dict(zip(run.history, row, strict=True)) for row in rows)
    best = best_row(({k: v for k, v in epoch.items() if v is not None} for epoch in epochs), run.config.monitor)
    if best is None:
        return "## Quality\n\nUnknown: the validation split was not ranked during training.\n"
    values = [(label, f"{best[f'val_{name}']:.4f}") for name, label in METRICS.items() if f"val_{name}" in best]
    about = f"Filtered ranks of the validation split after epoch {best['epoch']}, whose weights these are."
    return f"## Quality\n\n{about}\n\n" + _table(("metric", "value"), values)


def _probabilities(exported: "Exported") -> str:
    fit = exported.calibration
    rows = [(f"{x.low:.2f}–{x.high:.2f}", f"{x.weight:.1%}", f"{x.probability:.3f}", f"{x.true:.3f}") for x in fit.bins]
    warning = "".join(f" **Warning: {text}.**" for text in fit.warnings())
    return (
        "## Probabilities\n\n"
        f"`probability` is sigmoid({fit.slope:.6g} · score + {fit.intercept:.6g}), fitted (Platt scaling) on "
        f"{fit.triples:,} {fit.split} triples and, for each, a corruption of its head and one of its tail that are not "
        "known facts. All triples weigh as much as all corruptions: at 0.5 a triple and a corruption are equally "
        f"likely. It is not the share of true facts among arbitrary questions.{warning}\n\n"
        f"Expected calibration error ({BINS} bins), measured on one half of the triples with a fit on the other half: "
        f"{fit.ece_before:.4f} for sigmoid(score), {fit.ece_after:.4f} for the fitted probability:\n\n"
    ) + _table(("probability", "share of the triples", "mean probability", "share true"), rows)


def _storage(exported: "Exported") -> str:
    text = f"## Storage\n\nThe tables are stored as {exported.dtype}; scores are computed in float32."
    if (drift := exported.drift) is not None:
        text += (
            f" Scores of {drift.triples:,} triples differ from the trained model's by {drift.mean:.2g} on average and "
            f"{drift.most:.2g} at most; {drift.same_best:.2%} of {drift.queries:,} queries have the same best answer."
        )
    return text + "\n"


def _limits(graph: Graph, exported: "Exported", reciprocal: bool) -> str:
    limits = [
        f"It knows the {graph.num_entities:,} entities and {graph.num_relations:,} relations of its graph, no others.",
        "A score compares the answers to one query; scores of different relations cannot be compared.",
        "Triples that the graph does not hold count as false in training and calibration, though some may be true.",
        "Entities with few training triples (counted in `entities.tsv`) have unreliable embeddings; without any, their "
        "embeddings are random.",
        "It repeats the errors and gaps of its graph.",
    ]
    if reciprocal:
        limits.append(
            "Its relations are reciprocal: a triple has one score as an answer to (head, relation, ?) and another as "
            "an answer to (?, relation, tail). `serving_default` and `score_ids` return the first, on which the "
            "probabilities are fitted; `predict_heads` ranks by the second."
        )
    if exported.typed:
        limits.append("`predict_*` only returns entities that training saw on that side of the relation.")
    if exported.candidates is not None:
        limits.append(f"`predict_*` only returns {exported.candidates:,} chosen entities.")
    return "## Limits\n\n" + "".join(f"- {limit}\n" for limit in limits)


def _signatures(exported: "Exported", contract: Mapping[str, Any]) -> str:
    name = exported.path.resolve().parent.name
    text = "## Signatures\n\nB is the number of rows of a request, K the greatest `k` of its rows, at most "
    text += f"{exported.top_k:,}.\n\n"
    rows = [
        (f"`{signature}`", _tensors(about["inputs"]), _tensors(about["outputs"]), MEANINGS[signature])
        for signature, about in contract["signatures"].items()
    ]
    text += _table(("signature", "inputs", "outputs", "meaning"), rows)
    text += (
        "\nAn unknown name or id is not an error: `known` is false for that row, its score is "
        f"{contract['unknown_score']}, its probability 0, its answers are empty names and its embedding is zeros. Rows "
        "with fewer than K answers are filled up in the same way.\n\n"
        f"If `jobi-tf serve` or TensorFlow Serving serves this folder as `{name}`:\n\n```sh\n"
    )
    for signature, inputs in contract["examples"].items():
        body = json.dumps({"signature_name": signature, "inputs": inputs}, ensure_ascii=False)
        text += f"curl -d {shlex.quote(body)} http://127.0.0.1:8501/v1/models/{name}:predict\n"
    return text + "```\n"


def _tensors(tensors: Mapping[str, Any]) -> str:
    """Returns text like `head, relation: string [B]`, with tensors of the same type and shape together."""
    kinds: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        shape = ", ".join("BK"[i] if size == -1 else str(size) for i, size in enumerate(tensor["shape"]))
        kinds.setdefault(f"{tensor['dtype']} [{shape}]", []).append(name)
    return "; ".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
