"""The files of an experiment: NAME.md, NAME.csv and NAME.png."""

import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

import jobi_tf
from jobi_tf.files import written_beside
from jobi_tf.reproduce.record import Record, commit
from jobi_tf.reproduce.runs import Plan
from jobi_tf.reproduce.tables import Table, figures, tables
from jobi_tf.training.config import TrainConfig

_ALWAYS = ("model", "joint", "dim")


def write(
    plan: Plan, folder: Path, name: str, absent: Mapping[str, str] = {}, command: Sequence[str] = ()
) -> tuple[list[Table], list[Path]]:
    """Writes the results of an experiment from the runs that are complete.

    Args:
        plan: the experiment and its runs.
        folder: where to write.
        name: name of the files, without suffix.
        absent: data sets that are not available, with the reason.
        command: the command line, for the record.

    Returns:
        The tables and the files; no picture where no run is complete or matplotlib is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page, numbers, picture = (folder / f"{name}.{suffix}" for suffix in ("md", "csv", "png"))
    frame = figures(plan)
    found = tables(plan, frame)
    is_drawn = find_spec("matplotlib") is not None and any(run.record for run in plan.all_runs)
    with written_beside(page) as beside:
        beside.write_text(_markdown(plan, name, found, is_drawn, absent, command), encoding="utf-8")
    with written_beside(numbers) as beside:
        kept = frame[(frame["metric"] != "triples") & ((frame["seeds"] > 0) | frame["paper"].notna())]
        columns = ["dataset", "row", "at", "metric", "side", "mean", "sd", "seeds", "paper"]
        kept.to_csv(beside, columns=columns, index=False)
    if not is_drawn:
        picture.unlink(missing_ok=True)  # it would be of other runs
        return found, [page, numbers]
    from jobi_tf.reproduce.pictures import draw

    with written_beside(picture) as beside:
        draw(plan, frame, beside, plan.experiment.title + (" (a quick run)" if name != plan.experiment.name else ""))
    return found, [page, numbers, picture]


def _markdown(
    plan: Plan, name: str, found: Sequence[Table], is_drawn: bool, absent: Mapping[str, str], command: Sequence[str]
) -> str:
    experiment, runs = plan.experiment, plan.all_runs
    records = [run.record for run in runs if run.record is not None]
    parts = [f"# {experiment.title}", experiment.shows]
    if name != experiment.name:
        parts.append("**A quick run: small models, trained shortly, one seed. These figures are not results.**")
    parts.append(_state(len(records), len(runs)))
    parts += [f"{dataset} is missing: {' '.join(reason.split())}" for dataset, reason in absent.items()]
    parts += [part for table in found for part in (f"## {table.title}", _as_markdown(table))]
    parts += [f"![{experiment.title}]({name}.png)"] if is_drawn else []
    parts += [experiment.notes.strip()] if experiment.notes else []
    parts += ["## Settings", "All other settings are the defaults.", _settings(plan)]
    parts += ["## Origin", _origin(records, command)]
    return "\n\n".join(parts) + "\n"


def _state(done: int, wanted: int) -> str:
    if done == wanted:
        return f"All {wanted} runs are complete." if wanted != 1 else "The one run is complete."
    return f"**{done} of {wanted} runs are complete; the others are missing in these tables.**"


def _as_markdown(table: Table) -> str:
    """Returns a table, all columns but the first aligned to the right."""
    lines = [table.columns, ["---", *["--:"] * (len(table.columns) - 1)], *table.rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def _settings(plan: Plan) -> str:
    blocks = []
    for source in plan.sources:
        lines = {}
        for row in plan.experiment.rows:
            if runs := plan.at(row, source):
                records = plan.records(row, source)
                settings = records[0].content["settings"] if records else runs[0].config.model_dump()
                lines[row.name] = {key: value for key, value in settings.items() if _is_shown(plan, key, value)}
        text = yaml.safe_dump(lines, sort_keys=False, allow_unicode=True, default_flow_style=None, width=1000)
        blocks.append(f"{source.name}:\n\n```yaml\n{text}```")
    return "\n\n".join(blocks)


def _is_shown(plan: Plan, name: str, value: Any) -> bool:
    if name in ("dataset", "seed", "run_dir") or (plan.experiment.sweep and name == plan.experiment.sweep.setting):
        return False
    return name in _ALWAYS or (name in TrainConfig.model_fields and value != TrainConfig.model_fields[name].default)


def _origin(records: Sequence[Record], command: Sequence[str]) -> str:
    lines = [f"- command: `{shlex.join(command)}`", f"- written by jobi-tf {jobi_tf.__version__}{_at(commit())}"]
    if not records:
        return "\n".join(lines)
    runs = pd.json_normalize([dict(record.content) for record in records], max_level=2)
    versions = runs.filter(like="environment.versions.").rename(columns=lambda name: name.rpartition(".")[2])
    made = "jobi-tf " + versions["jobi-tf"] + runs["commit"].map(_at) + ", TensorFlow " + versions["tensorflow"]
    made += ", Keras " + versions["keras"]
    dates = runs["environment.date"].str[:10]
    machines = [
        f"{processors} processors" + (f", {jobs} runs at once" if jobs > 1 else "")
        for processors, jobs in sorted({*zip(runs["environment.processors"], runs["jobs"], strict=True)}, key=str)
    ]
    hours = sum(record.seconds for record in records) / 3600
    return "\n".join(
        [
            *lines,
            f"- runs made with {'; '.join(sorted(made.unique()))}",
            f"- runs complete from {dates.min()} to {dates.max()}, on {'; '.join(machines)}",
            f"- time of the runs: {hours:.2f} h; those that other experiments share are counted here too",
        ]
    )


def _at(commit: str | None) -> str:
    return f" at {commit}" if commit else ""
