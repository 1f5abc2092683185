"""The model card: what an export is, how good it is, and where its limits are."""

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jobi_tf.data.graph import SPLITS, Graph
from jobi_tf.evaluation.calibration import BINS
from jobi_tf.evaluation.metrics import METRICS, best_row, metric_texts
from jobi_tf.files import read_json
from jobi_tf.tables import markdown

if TYPE_CHECKING:
    import jobi_tf
    from jobi_tf.export.export import Exported

TEMPLATE = Path(__file__).with_name("card.md")
# Settings of the machine, not of the model.
LEFT_OUT = {
    *("dataset", "run_dir", "warm_start", "entity_vectors", "soft_labels", "strategy", "devices", "logical_devices")
}
MEANINGS = {
    "serving_default": "scores of triples",
    "score_ids": "scores of triples of ids, as in `entities.tsv` and `relations.tsv`",
    "predict_tails": "the best tails of (head, relation, ?), best first; `seen` marks known facts",
    "predict_heads": "the best heads of (?, relation, tail), likewise",
    "predict_new_tails": "the best tails without known facts",
    "predict_new_heads": "the best heads without known facts",
    "embed": "embeddings of entities",
}


def model_card(run: "jobi_tf.Run", exported: "Exported", contract: Mapping[str, Any]) -> str:
    """Returns the card of an export, in Markdown; `contract` is the content of its `signature.json`."""
    model, fit, name = run.model, exported.calibration, exported.path.resolve().parent.name
    heads = "jointly with a pair head (JoBi)" if model.joint else "without a pair head"
    origin = f"trained {heads} by {'another program' if run.config.own_program else 'jobi-tf'}"
    if run.config.merged_from:
        origin = f"merged from {len(run.config.merged_from)} runs by jobi-tf"
    bins = [(f"{x.low:.2f}–{x.high:.2f}", f"{x.weight:.1%}", f"{x.probability:.3f}", f"{x.true:.3f}") for x in fit.bins]
    signatures = [
        (f"`{signature}`", _tensors(about["inputs"]), _tensors(about["outputs"]), MEANINGS[signature])
        for signature, about in contract["signatures"].items()
    ]
    return TEMPLATE.read_text(encoding="utf-8").format(
        graph=run.graph,
        exported=exported,
        fit=fit,
        scorer=model.scorer.name,
        width=contract["width"],
        relations=", with reciprocal relations" if model.reciprocal else "",
        origin=origin,
        data=markdown(("", "number"), [(key, f"{count:,}") for key, count in _counts(run.graph).items()]),
        training=_training(run.config),
        quality=_quality(run),
        bins=BINS,
        warnings="".join(f" **Warning: {text}.**" for text in fit.warnings()),
        reliability=markdown(("probability", "share of the triples", "mean probability", "share true"), bins),
        drift=f" Compared with the trained model, {exported.drift}." if exported.drift else "",
        limits="".join(f"- {limit}\n" for limit in _limits(exported, model.reciprocal)),
        signatures=markdown(("signature", "inputs", "outputs", "meaning"), signatures),
        unknown_score=contract["unknown_score"],
        name=name,
        examples="".join(_example(name, *example) for example in contract["examples"].items()),
    )


def _counts(graph: Graph) -> dict[str, int]:
    unseen = graph.num_entities - int(graph.seen_in_training.sum())
    counts = {"entities": graph.num_entities, "entities without a training triple": unseen}
    return counts | {"relations": graph.num_relations} | {f"{name} triples": len(graph.split(name)) for name in SPLITS}


def _training(config: Any) -> str:
    """Returns the settings of the training or the runs that were merged, and what was added to them."""
    added = f"\nAdded afterwards: {'; '.join(config.extended_by)}.\n" if config.extended_by else ""
    if config.merged_from:
        sources = "".join(f"- `{source}`\n" for source in config.merged_from)
        return f"This model was merged from {len(config.merged_from)} runs:\n\n{sources}{added}"
    left_out = LEFT_OUT.union(config.without_effect(), ["extended_by"])
    settings = config.model_dump(exclude=left_out, exclude_unset=config.own_program)
    return markdown(("setting", "value"), [(key, str(x)) for key, x in settings.items() if x is not None]) + added


def _quality(run: "jobi_tf.Run") -> str:
    rows = zip(*run.history.values(), strict=True)
    epochs = (dict(zip(run.history, row, strict=True)) for row in rows)
    best = best_row(({k: v for k, v in epoch.items() if v is not None} for epoch in epochs), run.config.monitor) or {}
    metrics = {"validation": {k.removeprefix("val_"): v for k, v in best.items()}, "test": run.test_metrics}
    columns = {split: metric_texts(x) for split, x in metrics.items() if "mrr" in x}
    if not columns:
        return "Unknown: neither the validation nor the test split was ranked.\n"
    about = "Filtered ranks; entities with equal scores have the mean of their ranks (realistic ties)."
    if run.config.merged_from:
        record = read_json(run.records / "merged.json", "the record of a merge", "held_out_mrr") if run.records else {}
        if record.get("held_out_mrr"):
            about += " Validation triples chose the weights of the runs: only test ranks are independent of them."
    elif best:
        about += f" The weights are those after epoch {best['epoch']}, the best one on the validation split."
    if best:
        about += " Validation ranks are not filtered with test triples"
        about += ", and were computed before entities were added." if run.config.extended_by else "."
    return f"{about}\n\n" + markdown(("metric", *columns), list(zip(METRICS.values(), *columns.values(), strict=True)))


def _limits(exported: "Exported", reciprocal: bool) -> Iterable[str]:
    if reciprocal:
        yield (
            "Its relations are reciprocal: a triple has one score as an answer to (head, relation, ?) and another as "
            "an answer to (?, relation, tail). `serving_default` and `score_ids` return the first, on which the "
            "probabilities are fitted; `predict_heads` ranks by the second."
        )
    if exported.typed:
        yield "`predict_*` only returns entities that training saw on that side of the relation."
    if exported.candidates is not None:
        yield f"`predict_*` only returns {exported.candidates:,} chosen entities."


def _tensors(tensors: Mapping[str, Any]) -> str:
    """Returns text like `head, relation: string [B]`, with tensors of the same type and shape together."""
    kinds: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        shape = ", ".join("BK"[i] if size == -1 else str(size) for i, size in enumerate(tensor["shape"]))
        kinds.setdefault(f"{tensor['dtype']} [{shape}]", []).append(name)
    return "; ".join(f"{', '.join(names)}: {kind}" for kind, names in kinds.items())


def _example(name: str, signature: str, inputs: Mapping[str, Any]) -> str:
    body = json.dumps({"signature_name": signature, "inputs": inputs}, ensure_ascii=False)
    return f"curl -d {shlex.quote(body)} http://127.0.0.1:8501/v1/models/{quote(name)}:predict\n"
