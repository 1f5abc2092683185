"""The page of a report: from run folders to one HTML file."""

import base64
import hashlib
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import jobi_tf
from jobi_tf.data.graph import Graph
from jobi_tf.errors import MissingExtraError, UsageError
from jobi_tf.evaluation.metrics import METRICS
from jobi_tf.files import written_beside
from jobi_tf.training.run_folder import RunFolder

HERE = Path(__file__).parent
SPLITS = ("valid", "test")


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    split: str = "valid",
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Writes one self-contained HTML page that measures and compares runs; it appears complete or not at all.

    Args:
        runs: run folders, all on the same graph; the first is what the others are compared with.
        out: the file; one that exists is replaced.
        split: `valid`, to choose by, or `test`.
        limit: the most triples to rank; of a larger split, a sample that is the same for every run.
        progress: called with the number of triples ranked on a side since its last call.

    Returns:
        The file.

    Raises:
        UsageError: the runs are on different graphs, one is given twice, or there is none; `split`, `limit` or `out`
            cannot be.
        DataError: a folder is not that of a run that finished an epoch, or the split is empty.
        MissingExtraError: Jinja is not installed.

    Example:
        >>> write_report(["runs/plain", "runs/joint"], "report.html")
    """
    _jinja()
    out, paths = Path(out), [Path(run) for run in runs]
    if split not in SPLITS:
        raise UsageError(f"expected a split out of {', '.join(SPLITS)}, got {split!r}")
    if limit is not None and limit < 1:
        raise UsageError(f"expected a limit of at least 1 triple, got {limit}")
    if out.is_dir() or not out.parent.is_dir():
        reason = "is a folder" if out.is_dir() else f"is in {out.parent}, which is no folder"
        raise UsageError(f"expected the name of a file to write, got {out}, which {reason}")
    graph = common_graph(paths)
    from jobi_tf.report.measured import measure

    with _new_traces():
        measured = [measure(path, split, limit, progress) for path in paths]
    text = render(measured, graph)
    with written_beside(out) as beside:
        beside.write_text(text, encoding="utf-8", errors="xmlcharrefreplace")
    return out


@contextmanager
def _new_traces() -> Iterator[None]:
    """Keeps TensorFlow from warning about functions that are traced anew: each run has a model of its own."""
    log = logging.getLogger("tensorflow")

    def other(record: logging.LogRecord) -> bool:
        return "retracing" not in record.getMessage()

    log.addFilter(other)
    try:
        yield
    finally:
        log.removeFilter(other)


def common_graph(paths: Sequence[Path]) -> Graph:
    """Returns the graph that all runs are on; raises as `write_report` does."""
    if not paths:
        raise UsageError("expected the folder of a run, got none")
    resolved = [path.resolve() for path in paths]
    for path in paths:
        if resolved.count(path.resolve()) > 1:
            raise UsageError(f"expected every run once, got {path} {resolved.count(path.resolve())} times")
    graphs = []
    for path in paths:
        folder = RunFolder(path)
        folder.read_config()  # says best that a folder is not that of a run
        graphs.append(folder.open_graph())
    for path, graph in zip(paths, graphs, strict=True):
        if graph.fingerprint != graphs[0].fingerprint:
            raise UsageError(
                f"expected runs on the same graph, as ranks compare only among the same entities and triples: "
                f"{paths[0]} is on {graphs[0].name}, {path} on {_another(graphs[0], graph)}"
            )
    return graphs[0]


def _another(first: Graph, second: Graph) -> str:
    return second.name if second.name != first.name else f"another graph of that name ({second.fingerprint[:8]})"


def render(runs: Sequence[Any], graph: Graph) -> str:
    """Returns the page about measured runs (`Measured`), all of the same triples of the graph."""
    from jobi_tf.report import sections
    from jobi_tf.report.charts import colour, reliability_chart

    jinja2 = _jinja()
    names = sections.labels([run.path for run in runs])
    calibration = [sections.calibration(run) for run in runs]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=_number, signed=_signed, share=_share, breakable=_breakable, colour=colour)
    script = (HERE / "page.js").read_text(encoding="utf-8").strip()
    evaluation = runs[0].evaluation
    return environment.get_template("page.html").render(
        version=jobi_tf.__version__,
        written=time.strftime("%Y-%m-%d %H:%M"),
        style=(HERE / "page.css").read_text(encoding="utf-8"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        graph=graph,
        split=evaluation.split,
        triples=len(evaluation.triples),
        of_triples=len(graph.split(evaluation.split)),
        unseen=int(evaluation.unseen.sum()),
        names=names,
        runs=runs,
        metrics=METRICS,
        settings=sections.settings(runs),
        losses={run.config.loss for run in runs},
        curves=sections.curves(runs, names),
        overall=sections.overall(runs),
        categories=sections.categories(runs, graph),
        relations=sections.relations(runs, graph),
        gains=[sections.gains(runs[0], run, graph) for run in runs[1:]],
        fewest=sections.FEWEST,
        implausible=sections.implausible(runs),
        implausible_relations=sections.implausible_relations(runs, graph),
        calibration_chart=reliability_chart([(name, bins) for name, (_, bins) in zip(names, calibration, strict=True)]),
        calibration=calibration,
        confidences=[float(sections.first_of(run, "both").confidence.mean()) for run in runs],
        environments=sections.environments(runs),
    )


def _jinja() -> ModuleType:
    try:
        import jinja2
    except ImportError as problem:
        raise MissingExtraError(f"the report needs an extra ({problem}): pip install 'jobi-tf[report]'") from None
    return jinja2


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
