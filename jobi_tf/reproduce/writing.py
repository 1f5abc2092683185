"""The files of an experiment: NAME.md, NAME.csv and NAME.png."""

import shlex
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

import jobi_tf
from jobi_tf.errors import needs
from jobi_tf.files import written_beside
from jobi_tf.reproduce.record import commit
from jobi_tf.reproduce.runs import Plan
from jobi_tf.reproduce.tables import Table, figures, tables
from jobi_tf.training.config import TrainConfig

with needs("tables of experiments need Jinja", "reproduce"):
    import jinja2

_ALWAYS = ("model", "joint", "dim")


def write(
    plan: Plan, folder: Path, absent: Mapping[str, str] = {}, command: Sequence[str] = ()
) -> tuple[list[Table], list[Path]]:
    """Writes the results of the runs that are complete, and returns the tables and the files.

    `absent` are data sets that are not available, with the reason; `command` is for the record. There is no picture
    where no run is complete or matplotlib is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page, numbers, picture = (folder / f"{plan.name}.{suffix}" for suffix in ("md", "csv", "png"))
    frame = figures(plan)
    found = tables(plan, frame)
    is_drawn = find_spec("matplotlib") is not None and bool(plan.complete)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = lambda text: text.replace("|", "\\|")
    environment.filters["join_lines"] = lambda text: " ".join(text.split())
    values = {"plan": plan, "tables": found, "is_drawn": is_drawn, "absent": absent, "command": shlex.join(command)}
    with written_beside(page) as beside:
        text = environment.get_template("page.md").render(values, settings=_settings(plan), **_origin(plan))
        beside.write_text(text, encoding="utf-8")
    with written_beside(numbers) as beside:
        kept = frame[(frame["metric"] != "triples") & ((frame["seeds"] > 0) | frame["paper"].notna())]
        columns = ["dataset", "row", "at", "metric", "side", "mean", "sd", "seeds", "paper"]
        kept.drop_duplicates(columns[:5]).to_csv(beside, columns=columns, index=False)
    if not is_drawn:
        picture.unlink(missing_ok=True)  # it would be of other runs
        return found, [page, numbers]
    from jobi_tf.reproduce.pictures import draw

    with written_beside(picture) as beside:
        draw(plan, frame, beside)
    return found, [page, numbers, picture]


def _settings(plan: Plan) -> dict[str, str]:
    """Returns for each data set the settings of its rows as YAML, but for those at their defaults."""
    swept = plan.experiment.sweep.setting if plan.experiment.sweep else ""
    hidden = {"dataset", "seed", "run_dir", "soft_labels", swept}
    defaults = {name: field.default for name, field in TrainConfig.model_fields.items()}
    texts = {}
    for source in plan.sources:
        lines = {}
        for row in plan.experiment.rows_on(source.name):
            needed = row.model_dump(include={"pool", "rules", "merge", "warm_start"}, exclude_defaults=True)
            if not row.is_trained and needed:
                lines[row.name] = needed
            elif runs := plan.at(row, source, plan.experiment.points[0]):
                records = plan.records(row, source, plan.experiment.points[0])
                settings = records[0].content["settings"] if records else runs[0].config.model_dump()
                lines[row.name] = needed | {
                    name: value
                    for name, value in settings.items()
                    if name not in hidden | needed.keys() and (name in _ALWAYS or value != defaults.get(name, value))
                }
        form: dict[str, Any] = {"sort_keys": False, "default_flow_style": None, "width": 1000}
        texts[source.name] = yaml.safe_dump(lines, allow_unicode=True, **form)
    return texts


def _origin(plan: Plan) -> dict[str, Any]:
    """Returns by what versions, when, where and in how many hours the runs were made."""
    records = [run.record for run in plan.complete if run.record]
    made, dates, machines = set(), set(), set()
    for record in records:
        environment, jobs = record.content["environment"], record.content["jobs"]
        versions = environment["versions"]
        ours = _version(versions["jobi-tf"], record.content["commit"])
        made.add(f"{ours}, TensorFlow {versions['tensorflow']}, Keras {versions['keras']}")
        dates.add(environment["date"][:10])
        machines.add(f"{environment['processors']} processors" + (f", {jobs} runs at once" if jobs > 1 else ""))
    return {
        "version": _version(jobi_tf.__version__, commit()),
        "made": sorted(made),
        "dates": dates,
        "machines": sorted(machines),
        "hours": sum(record.seconds for record in records) / 3600,
    }


def _version(version: str, commit: str | None) -> str:
    return f"jobi-tf {version}" + (f" at {commit}" if commit else "")
