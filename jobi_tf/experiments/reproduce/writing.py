"""The files of an experiment: NAME.md, NAME.csv and NAME.png."""

import csv
import math
import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

import jobi_tf
from jobi_tf.experiments.reproduce import results
from jobi_tf.experiments.reproduce.plan import Plan
from jobi_tf.experiments.reproduce.record import Record, commit
from jobi_tf.experiments.reproduce.sheets import Sheet, sheets
from jobi_tf.files import written_beside
from jobi_tf.training.config import TrainConfig

COLUMNS = ("dataset", "row", "at", "metric", "side", "mean", "sd", "seeds", "paper")
_ALWAYS = ("model", "joint", "dim")


def write(plan: Plan, folder: Path, name: str, absent: Mapping[str, str], command: Sequence[str]) -> list[Path]:
    """Writes what an experiment shows, from the runs that are complete.

    Args:
        plan: the experiment and its runs.
        folder: where to write.
        name: name of the files, without their endings.
        absent: data sets that could not be had, with the reason.
        command: the command line, for the record.

    Returns:
        The files; no picture where no run is complete or matplotlib is missing.
    """
    experiment = plan.experiment
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{ending}" for ending in ("md", "csv", "png")]
    with written_beside(paths[0]) as beside:
        beside.write_text(markdown(plan, name, absent, command), encoding="utf-8")
    with written_beside(paths[1]) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for figure in results.all_figures(plan):
            if figure.values or figure.paper is not None:
                numbers = (figure.mean, figure.sd, len(figure.values), figure.paper)
                writer.writerow([*_place(figure), *("" if _is_nothing(x) else x for x in numbers)])
    if not _is_drawn(plan):
        paths[2].unlink(missing_ok=True)  # it would be of other runs
        return paths[:2]
    from jobi_tf.experiments.reproduce.pictures import draw

    with written_beside(paths[2]) as beside:
        draw(plan, beside, experiment.title + (" (a quick run)" if name != experiment.name else ""))
    return paths


def _is_drawn(plan: Plan) -> bool:
    return find_spec("matplotlib") is not None and any(run.record is not None for run in plan.all_runs)


def _place(figure: results.Figure) -> tuple[Any, ...]:
    at = "" if figure.at is None else figure.at
    return figure.dataset, figure.row, at, figure.metric, figure.side


def _is_nothing(value: float | None) -> bool:
    return value is None or math.isnan(value)


def markdown(plan: Plan, name: str, absent: Mapping[str, str], command: Sequence[str]) -> str:
    """Returns the page of an experiment."""
    experiment, runs = plan.experiment, plan.all_runs
    records = [run.record for run in runs if run.record is not None]
    parts = [f"# {experiment.title}", experiment.shows]
    if name != experiment.name:
        parts.append("**A quick run: small models, trained shortly, one seed. These figures are not results.**")
    parts.append(_state(len(records), len(runs)))
    parts += [f"{dataset} is missing: {_one_line(reason)}" for dataset, reason in absent.items()]
    parts += [part for sheet in sheets(plan) for part in (f"## {sheet.title}", as_markdown(sheet))]
    if _is_drawn(plan):
        parts.append(f"![{experiment.title}]({name}.png)")
    parts += [experiment.notes.strip()] if experiment.notes else []
    parts += ["## Settings", "What is not told is at its default.", _settings(plan)]
    parts += ["## Origin", _origin(records, command)]
    return "\n\n".join(parts) + "\n"


def _state(done: int, wanted: int) -> str:
    if done == wanted:
        return f"All {wanted} runs are complete." if wanted != 1 else "The one run is complete."
    return f"**{done} of {wanted} runs are complete; the others are missing in these tables.**"


def as_markdown(sheet: Sheet) -> str:
    """Returns a table, its columns but the first aligned to the right."""
    rules = ["---", *["--:"] * (len(sheet.columns) - 1)]
    lines = [sheet.columns, rules, *sheet.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _settings(plan: Plan) -> str:
    blocks = []
    for source in plan.sources:
        lines = {}
        for row in plan.experiment.rows:
            runs = plan.at(row, source)
            if not runs:
                continue
            complete = next((run.record for run in runs if run.record is not None), None)
            settings = complete.content["settings"] if complete else runs[0].config.model_dump()
            lines[row.name] = {name: value for name, value in settings.items() if _tells(plan, name, value)}
        text = yaml.safe_dump(lines, sort_keys=False, allow_unicode=True, default_flow_style=None, width=1000)
        blocks.append(f"{source.name}:\n\n```yaml\n{text}```")
    return "\n\n".join(blocks)


def _tells(plan: Plan, name: str, value: Any) -> bool:
    if name in ("dataset", "seed", "run_dir") or (plan.experiment.sweep and name == plan.experiment.sweep.setting):
        return False
    return name in _ALWAYS or (name in TrainConfig.model_fields and value != TrainConfig.model_fields[name].default)


def _origin(records: Sequence[Record], command: Sequence[str]) -> str:
    lines = [f"- command: `{shlex.join(command)}`", f"- written by jobi-tf {jobi_tf.__version__}{_at(commit())}"]
    if not records:
        return "\n".join(lines)
    contents = [record.content for record in records]
    versions = {
        f"jobi-tf {x['environment']['versions']['jobi-tf']}{_at(x['commit'])}, "
        f"TensorFlow {x['environment']['versions']['tensorflow']}, Keras {x['environment']['versions']['keras']}"
        for x in contents
    }
    dates = sorted(x["environment"]["date"][:10] for x in contents)
    lines.append(f"- runs made with {'; '.join(sorted(versions))}")
    lines.append(f"- runs complete from {dates[0]} to {dates[-1]}, on {_machines(contents)}")
    hours = sum(record.seconds for record in records) / 3600
    lines.append(f"- time of the runs: {hours:.2f} h; those that other experiments share are counted here too")
    return "\n".join(lines)


def _at(commit: str | None) -> str:
    return f" at {commit}" if commit else ""


def _machines(contents: Sequence[Mapping[str, Any]]) -> str:
    kinds = {(x["environment"]["processors"], x["jobs"]) for x in contents}
    return "; ".join(
        f"{processors} processors" + (f", {jobs} runs at once" if jobs > 1 else "")
        for processors, jobs in sorted(kinds, key=str)
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())
