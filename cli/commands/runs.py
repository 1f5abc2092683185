"""`jobi-tf runs`."""

from pathlib import Path
from shlex import quote
from typing import Any

import click
import cloup

from jobi_tf.console import print_json, print_table, warn
from jobi_tf.errors import DataError, UsageError
from jobi_tf.evaluation.metrics import METRICS, metric_texts
from jobi_tf.training.config import TrainConfig

from ..options import (
    COUNT,
    FOLDER,
    Group,
    json_option,
    parse_assignments,
    run_name,
    runs_option,
    seed_option,
    setting_text,
)

SHOWN = ("mrr", "hits@10")


class _ListByDefault(Group):
    """Calls `list` where no command is named."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *context.help_option_names):
            args = ["list", *args]
        return super().parse_args(context, args)


@cloup.group(cls=_ListByDefault)
def runs() -> None:
    """List runs, and compare two of them.

    `jobi-tf runs` is short for `jobi-tf runs list`.
    """


@runs.command("list")
@cloup.argument("folder", type=FOLDER, default="runs", help="Folder to search for runs (default: runs).")
@cloup.option("--sort", metavar="KEY", help="Setting or metric, such as dim, val_mrr or test_hits@10; best first.")
@cloup.option("--filter", "filters", multiple=True, metavar="KEY=VALUE", help="List only these runs; may be repeated.")
@json_option
def list_(folder: Path, sort: str | None, filters: tuple[str, ...], as_json: bool) -> None:
    """List the runs in a folder with their settings and metrics.

    Shows the best validation metrics, the test metrics stored by `jobi-tf evaluate`, and the settings that differ
    between runs, without those that have their default. A batch size and a learning rate that were not given are those
    that the data and other settings determine. --json prints all settings and metrics; settings that have no effect
    are null, and of merged runs all settings of training.
    """
    from jobi_tf.report.runs import different_settings, find_runs, run_values, select_runs

    found = {}
    for path in find_runs(folder, lambda error: warn(f"cannot read {error.filename}: {error.strerror}")):
        try:
            found[path] = run_values(path)
        except DataError as error:
            warn(error)
    where = parse_assignments(filters, "--filter")
    settings = {name: value for name, value in where.items() if name in TrainConfig.model_fields}
    config = TrainConfig.create({"dataset": "any"} | settings, "--filter")
    where |= {name: getattr(config, name) for name in settings}
    chosen = select_runs(found, where, sort and sort.replace("-", "_"))
    if as_json:
        print_json([{"run": str(path), **values} for path, values in chosen.items()])
        return
    if not chosen:
        click.echo(f"no runs in {folder}" + (f", {len(found)} before filtering" if found else ""), err=True)
        return
    paths = [str(path.relative_to(folder)) if path != folder else str(folder) for path in chosen]
    names = [f"{split}_{name}" for split in ("val", "test") for name in SHOWN]
    rows = [
        [
            label,
            "–" if values["own_program"] or values["merged_from"] else f"{values['epochs_done']}/{values['epochs']}",
            *metric_texts(values, names),
        ]
        for label, values in zip(paths, chosen.values(), strict=True)
    ]
    print_table(["run", "epochs", *(f"{split} {METRICS[name]}" for split in ("val", "test") for name in SHOWN)], rows)
    different = different_settings([*chosen.values()])
    if different:
        click.echo()
        options = [_options({name: values[i] for name, values in different.items()}) for i in range(len(chosen))]
        print_table(("run", "settings"), list(zip(paths, options, strict=True)), text=("run", "settings"))


def _options(settings: dict[str, Any]) -> str:
    """Returns settings as options of `jobi-tf train`, without those that have their default."""
    parts = []
    for name, value in settings.items():
        flag, text = name.replace("_", "-"), setting_text(value)
        if name in ("merged_from", "extended_by") and value:
            parts.append(f"{name.replace('_', ' ')} {', '.join(value)}")
        elif name == "own_program" and value:
            parts.append("trained by another program")
        elif value not in (None, TrainConfig.model_fields[name].default):
            parts.append(f"--{'' if value else 'no-'}{flag}" if isinstance(value, bool) else f"--{flag} {quote(text)}")
    return " ".join(parts)


@runs.command()
@runs_option()
@cloup.option("--samples", type=COUNT, default=10_000, help="Number of bootstrap samples.")
@seed_option
@json_option
def compare(runs: tuple[Path, ...], samples: int, seed: int, as_json: bool) -> None:
    """Compare two runs on the test split.

    Prints the settings that differ, and the differences of MRR and Hits@10 with 95 % confidence intervals and p-values
    of a paired bootstrap over the test triples. Run `jobi-tf evaluate` on both runs first. They must be on the same
    graph.
    """
    from jobi_tf.report.runs import compare_runs, different_settings, run_values

    if len(runs) != 2:
        raise UsageError(f"expected two runs to compare, got {len(runs)}")
    a, b = runs
    values_of = [run_values(a), run_values(b)]
    differences = compare_runs(a, b, samples, seed)
    settings = different_settings(values_of)
    if as_json:
        test = {name: difference._asdict() for name, difference in differences.items()}
        print_json({"runs": [str(a), str(b)], "settings": settings, "test": test})
        return
    names = (run_name(a), run_name(b))
    if settings:
        print_table(("setting", *names), [[name, *map(setting_text, values)] for name, values in settings.items()])
    else:
        click.echo("the same settings")
    click.echo()
    rows = []
    for name, x in differences.items():
        values = [f"{run[f'test_{name}']:.4f}" for run in values_of]
        rows.append([METRICS[name], *values, f"{x.mean:+.4f}", f"{x.low:+.4f} … {x.high:+.4f}", f"{x.p_value:.4f}"])
    print_table(("test", *names, "difference", "95 % interval", "p"), rows)
