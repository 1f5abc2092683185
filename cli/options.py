"""The options that commands share, and the class of commands."""

import functools
import math
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TextIO, get_args, get_origin

import click
import cloup
from cloup.constraints import If, require_all

from jobi_tf.errors import DataError, UsageError
from jobi_tf.files import written_beside

from .start import start_tensorflow

if TYPE_CHECKING:
    from jobi_tf.data.graph import Graph
    from jobi_tf.training.pool import Pool
    from jobi_tf.training.run import Run

FOLDER = cloup.dir_path(path_type=Path, exists=True)
FILE = cloup.file_path(path_type=Path, exists=True)
COUNT = click.IntRange(min=1)
MOST_IDS = 2**31 - 1  # of entities and of relations, since ids are int32
IDS = click.IntRange(1, MOST_IDS)
PORT = click.IntRange(0, 65535)


class FloatRange(click.FloatRange):
    """A range of numbers that rejects NaN, which click accepts because it is neither below nor above a limit."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Returns the number."""
        number = super().convert(value, parameter, context)
        if math.isnan(number):
            self.fail(f"{value} is not a number.", parameter, context)
        return number


POSITIVE = FloatRange(min=0, min_open=True)


class _OutPath(click.Path):
    """A file or folder to write: not an empty name, as of an unset shell variable; the folder of a file must exist."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Returns the path, which is checked before any work is done."""
        if value == "":
            self.fail(f"Expected the name of a {self.name}, got ''.", parameter, context)
        path: Any = super().convert(value, parameter, context)
        if self.file_okay and not path.parent.is_dir():
            self.fail(f"The folder of '{path}' does not exist.", parameter, context)
        return path


OUT_FOLDER = _OutPath(file_okay=False, path_type=Path)
OUT_FILE = _OutPath(dir_okay=False, path_type=Path)

# What users of other libraries type, and the option here; for settings see `jobi_tf.training.config.SYNONYMS`.
SYNONYMS = {"output": "--out", "run": "--run-dir", "top_k": "-k", "topk": "-k"}


class Command(cloup.Command):
    """A command that suggests an option for an unknown one, and rejects an option that is given twice.

    Options that collect values, such as `--set`, may be repeated. The help calls whole numbers N and others X.
    """

    def __init__(self, *arguments: Any, **attributes: Any):
        super().__init__(*arguments, **attributes)
        for parameter in self.params:
            if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType):
                integer = isinstance(parameter.type, click.types.IntParamType)
                parameter.metavar = parameter.metavar or ("N" if integer else "X")

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments."""
        try:
            _, _, order = self.make_parser(context).parse_args(list(args))
        except click.NoSuchOption as error:
            from jobi_tf.training import config

            name = error.option_name.lstrip("-").replace("-", "_")
            meant = SYNONYMS.get(name) or "--" + config.SYNONYMS.get(name, "").replace("_", "-")
            if any(meant in parameter.opts for parameter in self.params):
                message = f"{error.message} Did you mean {meant}?"
                raise click.NoSuchOption(error.option_name, message, ctx=context) from None
            raise
        for option in order:
            if isinstance(option, click.Option) and not option.multiple and order.count(option) > 1:
                names = "/".join([*option.opts, *option.secondary_opts])
                raise click.UsageError(f"Option {names} was given {order.count(option)} times.", context)
        return super().parse_args(context, args)


class Group(cloup.Group):
    """A group of commands of that class."""

    command_class = Command


def add_dataset(settings: dict[str, Any], argument: str | None) -> None:
    """Adds a data set that was given as an argument instead of by --dataset; a UsageError if they differ."""
    if argument is not None and settings.setdefault("dataset", argument) != argument:
        raise UsageError(f"expected one data set, got {argument} and --dataset {settings['dataset']}")


def argument_or_option(
    name: str, flag: str, metavar: str, kind: click.ParamType | type, description: str, required: bool = True
) -> Callable:
    """Adds a value that is an argument or an option, as in `evaluate RUN` and `evaluate --run-dir RUN`.

    Where `metavar` ends with …, there may be several, which are different paths, and the command gets a tuple.
    """
    one = metavar.rstrip("…")
    several = one != metavar

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def with_value(*arguments: Any, **values: Any) -> Any:
            given = [value for value in (values.pop("argument_" + name), values.pop(name)) if value not in (None, ())]
            if len(given) > 1:
                raise click.UsageError(f"Expected {metavar} or {flag}, got both.")
            if required and not given:
                raise click.UsageError(f"Missing {metavar}, which is an argument or the value of {flag}.")
            value: Any = given[0] if given else () if several else None
            if several and len({path.resolve() for path in value}) < len(value):
                raise click.UsageError(f"Expected every {one} once, got {', '.join(map(run_name, value))}.")
            return command(*arguments, **values, **{name: value})

        option = cloup.option(flag, name, type=kind, metavar=one, help=description, multiple=several)
        argument = cloup.argument(
            "argument_" + name, type=kind, metavar=f"[{metavar}]", required=False, nargs=-1 if several else 1
        )
        return argument(option(with_value))

    return decorate


def run_name(path: Path) -> str:
    """Returns what users call a run: its path, or `world`."""
    from jobi_tf.training.run_folder import PRETRAINED

    return next((name for name, folder in PRETRAINED.items() if folder == path), str(path))


def evaluation_of(graph: "Graph", run: Path) -> str:
    """Returns the command that ranks the test split of a run, else the validation split, else lists new triples."""
    path = shlex.quote(str(run))
    if not len(graph.test):
        return f"jobi-tf evaluate {path} --split valid" if len(graph.valid) else f"jobi-tf complete {path}"
    return f"jobi-tf evaluate {path}"


class _Run(click.Path):
    """The folder of a run, or `world`, the run that is part of the package."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Returns the folder."""
        from jobi_tf.training.run_folder import run_path

        return super().convert(run_path(value), parameter, context)


RUN = _Run(exists=True, file_okay=False, path_type=Path)
run_option = argument_or_option("run", "--run-dir", "RUN", RUN, "Folder of the run, or world.")


def runs_option(required: bool = True) -> Callable:
    """Adds the arguments RUN… and the option --run-dir: folders of runs that are read."""
    return argument_or_option("runs", "--run-dir", "RUN…", RUN, "Folder of a run, or world.", required)


rules_option = cloup.option("--rules", is_flag=True, help="Mine the rules of the graph, and pool them with the runs.")


def open_run(path: Path) -> "Run":
    """Starts TensorFlow, and opens a run."""
    start_tensorflow()
    import jobi_tf

    return jobi_tf.load_run(path)


def open_runs(paths: tuple[Path, ...], rules: bool) -> "Run | Pool":
    """Opens a run, or pools several runs, or a run and rules."""
    import jobi_tf

    runs = [open_run(path) for path in paths]
    if len(runs) == 1 and not rules:
        return runs[0]
    return jobi_tf.Pool(runs, jobi_tf.RuleModel(runs[0].graph) if rules else None)


@contextmanager
def opened(out: Path | None) -> Iterator[TextIO]:
    """Opens stdout, or a file that appears when everything is written."""
    if out is None:
        yield sys.stdout
    else:
        with written_beside(out) as beside, beside.open("w", encoding="utf-8", newline="\n") as file:
            yield file


def out_option(description: str, folder: bool = True, default: str | None = None, required: bool = False) -> Callable:
    """Adds --out: the folder or file that is written."""
    kind, metavar = (OUT_FOLDER, "DIR") if folder else (OUT_FILE, "FILE")
    chosen: dict[str, Any] = {"required": True} if required else {"default": default}  # None would count as given
    return cloup.option("--out", type=kind, metavar=metavar, help=description, **chosen)


jobs_option = cloup.option("--jobs", type=COUNT, default=1, help="Number of trainings at a time.")
json_option = cloup.option("--json", "as_json", is_flag=True, help="Print JSON.")
candidates_option = cloup.option(
    "--candidates",
    type=FILE,
    help="File with one entity name per line; only these are candidates (and the true answer, when ranked).",
)
typed_option = cloup.option(
    "--typed", is_flag=True, help="Only return entities that training saw on that side of the relation."
)
seed_option = cloup.option("--seed", type=click.IntRange(min=0), default=0, help="Random seed.")


def _read_token(context: click.Context, parameter: click.Parameter, path: Path | None) -> str | None:
    if path is None:
        return None
    token = path.read_bytes().decode("ascii", "replace").strip()
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise DataError(f"expected one line with a token of letters, digits and signs in {path}")
    return token


token_option = cloup.option(
    "--token-file", "token", type=FILE, callback=_read_token, help="File with the token of requests."
)

# The settings of `jobi_tf.training.config.TrainConfig`, in the groups and the order of `jobi-tf train --help`.
SETTINGS = {
    "Recipe": "recipe minutes",
    "Data": "dataset split columns header weights",
    "Model": "model dim joint reciprocal warm_start entity_vectors freeze_entities",
    "Loss": "loss alpha answers_per_query rare_weight pair_entities margin adversarial_temperature label_smoothing "
    "soft_labels soft_weight n3 n3_pair l2 dura entity_dropout relation_dropout relation_prediction",
    "Negatives": "p negatives negatives_mode chunk filter_negatives",
    "Optimizer": "optimizer learning_rate batch_size",
    "Schedule": "schedule warmup_epochs epochs average_epochs eval_every eval_first monitor patience",
    "Run": "run_dir seed checkpoint_every tensorboard profile",
    "Machine": "strategy devices logical_devices precision table_dtype jit_compile",
}
GROUPS = {title: cloup.OptionGroup(title) for title in SETTINGS}
METAVARS = {
    "split": "SHARES",
    "model": "NAME",
    "columns": "H,R,T",
    "weights": "COLUMN",
    "devices": "all|0,1,…",
    "run_dir": "DIR",
    "dataset": "NAME|PATH",
    "recipe": "NAME|FILE",
    "warm_start": "RUN",
    "entity_vectors": "FILE",
    "soft_labels": "FILE",
    "checkpoint_every": "N|Nm",
    "tensorboard": "PARTS",
    "profile": "FIRST:LAST",
}


class ModelType(click.Choice):
    """The name of a score function, or `MODULE:CLASS` of one of the user's own."""

    def __init__(self) -> None:
        from jobi_tf.training.config import MODELS

        super().__init__(MODELS, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the name."""
        return value if ":" in value else super().convert(value, param, ctx)


def settings_options(*names: str) -> Callable:
    """Adds an option for every setting of a training in groups, or for the named ones."""
    from jobi_tf.training.config import TrainConfig

    groups = {name: None if names else GROUPS[title] for title, part in SETTINGS.items() for name in part.split()}

    def decorate(command: Callable) -> Callable:
        for name in reversed(names or groups):
            command = _setting_option(name, TrainConfig.model_fields[name], groups[name])(command)
        return command

    return decorate


def given(context: click.Context) -> dict[str, Any]:
    """Returns the settings that were given on the command line, without defaults."""
    from jobi_tf.training.config import TrainConfig

    names = TrainConfig.model_fields.keys() & context.params.keys()
    source = context.get_parameter_source
    return {name: context.params[name] for name in names if source(name) is click.core.ParameterSource.COMMANDLINE}


def _setting_option(name: str, field: Any, group: cloup.OptionGroup | None) -> Callable:
    flag, description = name.replace("_", "-"), field.description
    kind = field.annotation
    if get_origin(kind) is UnionType:
        kind = next(part for part in get_args(kind) if part is not type(None))
    shown: dict[str, Any] = {"help": description[:1].upper() + description[1:] + ".", "group": group}
    shown["default"] = None if field.is_required() else field.default
    if kind is bool:
        return cloup.option(f"--{flag}/--no-{flag}", name, **shown)
    kind = ModelType() if name == "model" else _click_type(kind, field.metadata)
    shown |= {"type": kind, "metavar": METAVARS.get(name)}
    return cloup.option(f"--{flag}", name, **shown)


def _click_type(kind: Any, rules: list[Any]) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind not in (int, float):
        return kind
    # pydantic keeps each rule of a field as an object with the rule's name as its attribute.
    bounds: dict[str, Any] = {}
    for rule in rules:
        for name, limit in (("ge", "min"), ("gt", "min"), ("le", "max"), ("lt", "max")):
            if hasattr(rule, name):
                bounds |= {limit: getattr(rule, name), f"{limit}_open": name in ("gt", "lt")}
    return (click.IntRange if kind is int else FloatRange)(**bounds)


def setting_text(value: Any) -> str:
    """Returns the value of a setting as tables show it."""
    return f"{value:g}" if isinstance(value, float) else "–" if value is None else str(value)


def parse_assignments(texts: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """Returns settings of texts `key=YAML`, or raises a `UsageError`; `flag` says where they were given."""
    import yaml

    settings: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"expected KEY=VALUE after {flag}, got {text!r}")
        if key in settings:
            raise UsageError(f"expected {flag} {key}=… at most once")
        try:
            settings[key] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError):  # also of a date such as 2026-02-30
            raise UsageError(f"expected a YAML value after {key}=, got {value!r}") from None
    return settings


def dataset_options(command: Callable) -> Callable:
    """Adds the data set and the options of its files; the command gets the arguments of `prepare` as `source`."""

    @functools.wraps(command)
    def with_source(seed: int | None, **options: Any) -> None:
        source = {name: options.pop(name) for name in ("dataset", "archive", "split", "columns", "header", "weights")}
        command(source | {"seed": seed or 0}, **options)

    description = "Name of a data set, or a folder or file of triples."
    for option in (
        cloup.constraint(If("seed", require_all), ["split"]),
        cloup.option("--seed", type=click.IntRange(min=0), help="Seed of the random split of --split  [default: 0]"),
        settings_options("split", "columns", "header", "weights"),
        cloup.option("--archive", type=FILE, help="Archive of a named data set, instead of a download."),
        argument_or_option("dataset", "--dataset", "NAME|PATH", str, description),
    ):
        with_source = option(with_source)
    return with_source
