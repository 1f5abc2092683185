"""Plots of one run: curves of training, a map of the entities, and ranks by relation."""

from pathlib import Path
from typing import Any

import numpy as np

from jobi_tf.data.occurrences import entity_degrees
from jobi_tf.datasets.statistics import entity_types
from jobi_tf.errors import UsageError, needs
from jobi_tf.evaluation.evaluate import evaluate
from jobi_tf.files import written_beside
from jobi_tf.training.run import Run

MOST_ENTITIES, NAMED_ENTITIES, TYPES, RELATIONS = 2000, 25, 9, 25
FORMATS = ("png", "svg")
LEGEND_CHARACTERS = 150  # of a line of the legend of the map


def plot_run(run: Run, out: Path) -> list[Path]:
    """Writes `curves`, `map` and `relations` as PNG and SVG into a folder, and returns their paths.

    `map` shows the most frequent entities by PCA and by t-SNE, in the colour of the relation and side that they occur
    with most often. `relations` has the MRR of each relation on the test split. A plot without data is left out.

    Raises:
        UsageError: there is nothing to plot.
        MissingExtraError: matplotlib or scikit-learn are not installed.
    """
    with needs("plots need matplotlib and scikit-learn", "plot"):
        import matplotlib.figure
        import sklearn.manifold  # noqa: F401
    plots = {}
    if min(run.model.entities.table.shape) > 1:  # t-SNE and PCA need two entities, with two numbers each
        plots["map"] = _plot_map
    if run.history:
        plots["curves"] = _plot_curves
    if len(run.graph.test):
        plots["relations"] = _plot_relations
    if not plots:
        raise UsageError("expected a run with two entities, a history or test triples, got nothing to plot")
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, plot in plots.items():
        with matplotlib.rc_context({"text.parse_math": False}):  # names may contain dollar signs
            figure = matplotlib.figure.Figure(figsize=(12, 6), layout="constrained")
            plot(run, figure)
            for suffix in FORMATS:
                paths.append(out / f"{name}.{suffix}")
                with written_beside(paths[-1]) as beside:
                    figure.savefig(beside, dpi=150)
    return paths


def _plot_curves(run: Run, figure: Any) -> None:
    history, (left, right) = run.history, figure.subplots(1, 2)
    for axes, names in (
        (left, {"loss": "total", "triple_loss": "triple", "pair_loss": "pair"}),
        (right, {"val_mrr": "MRR", "val_hits@1": "Hits@1", "val_hits@10": "Hits@10"}),
    ):
        for name, label in names.items():
            points = [x for x in zip(history["epoch"], history.get(name, []), strict=False) if x[1] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o" if axes is right else "", label=label)
        axes.set_xlabel("epoch")
        axes.locator_params(axis="x", integer=True)
        axes.grid(alpha=0.3)
        if axes.has_data():  # a run may never be ranked
            axes.legend()
    left.set_title("training loss")
    right.set_title("validation, filtered")


def _plot_map(run: Run, figure: Any) -> None:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    graph = run.graph
    entities = np.argsort(-entity_degrees(graph.train, graph.num_entities), kind="stable")[:MOST_ENTITIES]
    vectors = run.model.entities.rows(entities).numpy()
    types = np.array(entity_types(graph, entities))
    names, counts = np.unique(types, return_counts=True)
    shown = names[np.argsort(-counts)[:TYPES]]
    methods = {"PCA": PCA(2, random_state=0)}
    if len(entities) > 3:
        perplexity = min(30, (len(entities) - 1) / 3)
        methods["t-SNE"] = TSNE(2, random_state=0, init="pca", perplexity=perplexity)
    drawn: dict[Any, np.ndarray] = {}
    dots: dict[str, Any] = {}  # by label; Matplotlib itself leaves labels that begin with _ out of legends
    for axes, (name, method) in zip(figure.subplots(1, 2), methods.items(), strict=False):
        # The threads of t-SNE wait for each other. For 2,000 entities, two saved 3 s on idle cores and cost 36 s on
        # cores that another program used.
        with threadpool_limits(1):
            points = method.fit_transform(vectors)
        if len(names) > len(shown):
            dots["others"] = axes.scatter(*points[~np.isin(types, shown)].T, s=8, color="lightgray")
        for kind in shown:
            dots[kind] = axes.scatter(*points[types == kind].T, s=8)
        axes.set_title(f"embeddings of {len(entities):,} entities by {name}")
        axes.set_xticks([])
        axes.set_yticks([])
        drawn[axes] = points
    columns = int(np.clip(LEGEND_CHARACTERS // max(map(len, shown)), 1, 5))
    figure.legend(dots.values(), dots.keys(), loc="outside lower center", ncols=columns, fontsize=7, markerscale=2)
    figure.draw_without_rendering()  # which decides the places
    for axes, points in drawn.items():
        named: list[Any] = []
        for entity, point in zip(entities[:NAMED_ENTITIES], points, strict=False):
            text = axes.annotate(graph.entities[entity], point, fontsize=6)
            if text.get_window_extent().x1 > axes.bbox.x1:
                text.set_horizontalalignment("right")
            box = text.get_window_extent()
            if any(box.overlaps(other) for other in named):
                text.remove()
            else:
                named.append(box)


def _plot_relations(run: Run, figure: Any) -> None:
    relations = evaluate(run).by_relation()
    rows = list(relations.items())[:RELATIONS][::-1]
    axes = figure.subplots()
    labels = [f"{run.graph.relations[i]} ({row['triples']:,.0f})" for i, row in rows]
    axes.barh(labels, [row["mrr"] for _, row in rows])
    axes.set_xlim(0, 1)
    axes.set_xlabel("MRR")
    most = f"the {len(rows)} most frequent of {len(relations)}" if len(rows) < len(relations) else f"all {len(rows)}"
    axes.set_title(f"test split: {most} relations that it has (number of triples)")
    axes.set_axisbelow(True)
    axes.grid(axis="x", alpha=0.3)
