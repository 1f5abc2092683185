"""The page of a report: from run folders to one HTML file."""

import base64
import hashlib
import math
import re
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import jobi_tf
from jobi_tf.data.graph import Graph
from jobi_tf.data.occurrences import SIDES
from jobi_tf.datasets.statistics import CATEGORIES, relation_categories
from jobi_tf.errors import UsageError, check_at_least, needs
from jobi_tf.evaluation.calibration import Bin, expected_calibration_error
from jobi_tf.evaluation.metrics import METRICS
from jobi_tf.files import written_beside
from jobi_tf.report.charts import Chart, colour, line_chart, reliability_chart
from jobi_tf.report.measured import FILTERS, Measured, breakdown, measure
from jobi_tf.report.runs import common_graph, different_settings, labels
from jobi_tf.tables import data_frame
from jobi_tf.training.config import TrainConfig

if TYPE_CHECKING:
    import pandas as pd
    from jinja2 import Template

HERE = Path(__file__).parent
BOTH = ("both", *SIDES)
FEWEST = 10  # triples of a relation whose gain is shown, where some relation has as many
MOST_GAINS = 12
MOST_IMPLAUSIBLE = 15
CURVES = {
    "triple_loss": "triple loss",
    "pair_loss": "pair loss",
    **{f"val_{name}": f"validation {METRICS[name]}" for name in ("mrr", "hits@1", "hits@10")},
}


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    split: str = "valid",
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Writes a self-contained HTML page that evaluates and compares runs.

    Args:
        runs: run folders on the same graph; the others are compared with the first.
        out: the file; an existing file is replaced when the new one is complete.
        split: `valid`, to choose settings, or `test`.
        limit: largest number of triples to rank; a larger split is sampled, equally for all runs.
        progress: called with the number of triples ranked on a side since its last call.

    Returns:
        The file.

    Raises:
        UsageError: the runs are on different graphs, a run is given twice, or none is given; `runs` is not a list; or
            `split`, `limit` or `out` is invalid.
        DataError: a folder is not that of a run with a finished epoch, or the split is empty.
        MissingExtraError: Jinja or pandas is not installed.

    Example:
        >>> write_report(["runs/plain", "runs/joint"], "report.html")
    """
    template = _template()
    if isinstance(runs, str | Path):
        raise UsageError(f"expected a list of run folders, got {str(runs)!r}")
    out, paths = Path(out), [Path(run) for run in runs]
    if split not in FILTERS:
        raise UsageError(f"expected a split out of {', '.join(FILTERS)}, got {split!r}")
    check_at_least(1, limit=1 if limit is None else limit)
    if out.is_dir() or not out.parent.is_dir():
        reason = "is a folder" if out.is_dir() else f"is in {out.parent}, which is no folder"
        raise UsageError(f"expected the name of a file to write, got {out}, which {reason}")
    graph = common_graph(paths)
    measured = [measure(path, split, limit, progress) for path in paths]
    text = template.render(_values(measured, graph))
    with written_beside(out) as beside:
        beside.write_text(text, encoding="utf-8", errors="xmlcharrefreplace")
    return out


def _values(runs: Sequence["Measured"], graph: Graph) -> dict[str, Any]:
    """Returns what the template shows about runs that were measured on the same triples of the graph."""
    names, calibrations = labels([run.path for run in runs]), [calibration(run) for run in runs]
    script = (HERE / "page.js").read_text(encoding="utf-8").strip()
    evaluation, by_relation = runs[0].evaluation, relations(runs, graph)
    return {
        "version": jobi_tf.__version__,
        "written": time.strftime("%Y-%m-%d %H:%M"),
        "style": (HERE / "page.css").read_text(encoding="utf-8"),
        "script": script,
        "digest": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "graph": graph,
        "split": evaluation.split,
        "triples": len(evaluation.triples),
        "of_triples": len(graph.split(evaluation.split)),
        "unseen": int(evaluation.unseen.sum()),
        "names": names,
        "runs": runs,
        "metrics": METRICS,
        "settings": settings(runs),
        "losses": {run.config.loss for run in runs},
        "curves": curves(runs, names),
        "overall": by_side([run.answers for run in runs]),
        "categories": categories(runs, graph),
        "relations": by_relation,
        "gains": [gains(runs[0], run, graph) for run in runs[1:]],
        "fewest": FEWEST,
        "most_implausible": most_implausible(by_relation),
        "reliability": reliability_chart([(name, bins) for name, (_, bins) in zip(names, calibrations, strict=True)]),
        "calibration_errors": [error for error, _ in calibrations],
    }


def settings(runs: Sequence[Measured]) -> dict[str, list[dict[str, Any]]]:
    """Returns the settings that differ between the runs, then those off their defaults, then all others.

    Each has its value in every run, and whether that is the default, or none.
    """
    found: dict[str, list[dict[str, Any]]] = {"different": [], "unusual": [], "usual": []}
    different = different_settings([run.settings for run in runs]) if len(runs) > 1 else {}
    for name in runs[0].settings:
        values = [_text(run.settings[name]) for run in runs]
        usual = [run.settings[name] in (None, run.usual.get(name)) for run in runs]
        kind = "different" if name in different else "usual" if all(usual) else "unusual"
        description = TrainConfig.model_fields[name].description
        found[kind].append({"name": name, "description": description, "values": values, "usual": usual})
    return found


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(value)
    return {"None": "–", "True": "yes", "False": "no"}.get(str(value), str(value))


def curves(runs: Sequence[Measured], names: Sequence[str]) -> dict[str, Chart]:
    """Returns a chart for each metric that any run recorded, by its name."""
    charts = {}
    for metric, label in CURVES.items():
        lines = []
        for name, run in zip(names, runs, strict=True):
            points = [(row["epoch"], row[metric]) for row in run.epochs if row.get(metric) is not None]
            lines.append((name, points, run.best_epoch))
        if chart := line_chart(label, lines):
            charts[label] = chart
    return charts


def shown(answers: "pd.DataFrame") -> dict[str, float]:
    """Returns the `breakdown` of answers, with the shares of implausible ones among all, wrong and true answers."""
    implausible = ~answers["plausible"]
    return breakdown(answers) | {
        "share": implausible.mean(),
        "share_of_wrong": implausible[~answers["right"]].mean(),
        "share_of_true": 1 - answers["true_plausible"].mean(),
    }


def by_side(parts: Sequence["pd.DataFrame"]) -> dict[str, list[dict[str, float]]]:
    """Returns by side what there is to show about some answers of every run."""
    return {x: [shown(part if x == "both" else part[part["side"] == x]) for part in parts] for x in BOTH}


def categories(runs: Sequence[Measured], graph: Graph) -> list[dict[str, Any]]:
    """Returns for each relation category its relations, its triples and the metrics of each run by side."""
    relations = runs[0].evaluation.triples[:, 1]
    category = relation_categories(graph)[relations]
    found = []
    for name in (*CATEGORIES, "unseen"):
        chosen = category == name
        if chosen.any():
            counts = {"relations": len(np.unique(relations[chosen])), "triples": int(chosen.sum())}
            parts = [run.answers[np.tile(chosen, len(SIDES))] for run in runs]
            found.append({"name": name, **counts, **by_side(parts)})
    return found


def relations(runs: Sequence[Measured], graph: Graph) -> list[dict[str, Any]]:
    """Returns the category, the triples and the metrics by side of each relation, those with the most triples first."""
    ids, counts = np.unique(runs[0].evaluation.triples[:, 1], return_counts=True)
    category = relation_categories(graph)
    parts = [dict(tuple(run.answers.groupby("relation"))) for run in runs]
    return [
        {
            "name": graph.relations[ids[i]],
            "category": str(category[ids[i]]),
            "triples": int(counts[i]),
            **by_side([part[ids[i]] for part in parts]),
        }
        for i in np.argsort(-counts, kind="stable")
    ]


def most_implausible(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the `relations` and sides where some run has the most implausible first answers, the most first."""
    every = [row | {"side": side, "runs": row[side]} for side in SIDES for row in rows]
    counts = [max(run["implausible"] for run in row["runs"]) for row in every]
    order = np.argsort([-count for count in counts], kind="stable")[:MOST_IMPLAUSIBLE]
    return [every[i] for i in order if counts[i]]


def gains(baseline: Measured, run: Measured, graph: Graph) -> dict[str, Any]:
    """Compares the MRR of a run with a baseline: in all, and by relation, gains first.

    The margin is 1.96 standard errors of the mean difference over triples.
    """
    # [2N] of heads, then tails, to the mean over both: [N]
    before, after = ((1 / x.answers["rank"].to_numpy()).reshape(len(SIDES), -1).mean(0) for x in (baseline, run))
    columns = {"relation": run.evaluation.triples[:, 1], "before": before, "after": after, "gain": after - before}
    triples = data_frame(columns)
    groups = triples.groupby("relation")
    every = groups.mean().assign(triples=groups.size()).sort_values("gain", ascending=False, kind="stable")
    enough = every["triples"] >= FEWEST
    rows = every[enough] if enough.any() else every
    some = rows if len(rows) <= 2 * MOST_GAINS else rows.iloc[[*range(MOST_GAINS), *range(-MOST_GAINS, 0)]]
    return {
        "mrr": triples["gain"].mean(),
        "margin": 1.96 * triples["gain"].sem(),
        "better": (rows["gain"] > 0).sum(),
        "worse": (rows["gain"] < 0).sum(),
        "compared": len(rows),
        "largest": some["gain"].abs().max(),
        "rows": [{"name": graph.relations[row.Index], **row._asdict()} for row in some.itertuples()],
    }


def calibration(run: Measured) -> tuple[float, tuple[Bin, ...]]:
    """Returns the expected calibration error of the confidence of first answers, and its bins."""
    return expected_calibration_error(run.answers["confidence"].to_numpy(), run.answers["right"].to_numpy())


def _command(words: list[str]) -> str:
    if words and Path(words[0]).stem in ("__main__", "jobi-tf"):
        words = ["jobi-tf", *words[1:]]
    return shlex.join(words)


def _template() -> "Template":
    with needs("the report needs Jinja", "report"):
        import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, signed=_signed, share=_share, breakable=_breakable)
    environment.filters.update(colour=colour, command=_command, median=np.median)
    return environment.get_template("page.html")


def _number(value: float, digits: int = 4) -> str:
    return "–" if math.isnan(value) else f"{value:,.{digits}f}"


def _signed(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"


def _breakable(name: str) -> str:
    """Returns a name, escaped, that may be broken behind its punctuation."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.findall(r"[^/_.]*[/_.]*", name) if part)
