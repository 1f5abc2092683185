"""The options that commands share, and the class of commands."""

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
import cloup

from jobi_tf.errors import DataError, UsageError

if TYPE_CHECKING:
    from jobi_tf.training.pool import Pool
    from jobi_tf.training.run import Run

FOLDER = cloup.dir_path(path_type=Path, exists=True)
FILE = cloup.file_path(path_type=Path, exists=True)
OUT_FILE = cloup.file_path(path_type=Path)
OUT_FOLDER = cloup.dir_path(path_type=Path)
COUNT = click.IntRange(min=1)

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
            meant = _synonym(error.option_name)
            if any(meant in parameter.opts for parameter in self.params):
                message = f"{error.message} Did you mean {meant}?"
                raise click.NoSuchOption(error.option_name, message, ctx=context) from None
            raise
        for option in order:
            if isinstance(option, click.Option) and not option.multiple and order.count(option) > 1:
                names = "/".join([*option.opts, *option.secondary_opts])
                raise click.UsageError(f"Option {names} was given {order.count(option)} times.", context)
        return super().parse_args(context, args)


def _synonym(flag: str) -> str:
    from jobi_tf.training import config

    name = flag.lstrip("-").replace("-", "_")
    return SYNONYMS.get(name) or "--" + config.SYNONYMS.get(name, "").replace("_", "-")


class Group(cloup.Group):
    """A group of commands of that class."""

    command_class = Command


def argument_or_option(
    name: str,
    flag: str,
    metavar: str,
    kind: click.ParamType | type,
    description: str,
    required: bool = True,
    several: bool = False,
) -> Callable:
    """Adds a value that is an argument or an option, as in `evaluate RUN` and `evaluate --run-dir RUN`.

    Args:
        name: the parameter of the command that gets the value.
        flag: the option.
        metavar: what the help calls the value.
        kind: its type.
        description: help of the option.
        required: whether there must be a value.
        several: whether there may be several arguments, or the option several times; the command then gets a tuple.
    """

    def decorate(command: Callable) -> Callable:
        @functools.wraps(command)
        def with_one(*arguments: Any, **values: Any) -> Any:
            given = [value for value in (values.pop("argument_" + name), values.pop(name)) if value not in (None, ())]
            if len(given) > 1:
                raise click.UsageError(f"Expected {metavar} or {flag}, got both.")
            if required and not given:
                raise click.UsageError(f"Missing {metavar}, which is an argument or the value of {flag}.")
            value = given[0] if given else () if several else None
            return command(*arguments, **values, **{name: value})

        option = cloup.option(flag, name, type=kind, metavar=metavar.rstrip("…"), help=description, multiple=several)
        argument = cloup.argument(
            "argument_" + name, type=kind, metavar=f"[{metavar}]", required=False, nargs=-1 if several else 1
        )
        return argument(option(with_one))

    return decorate


class _Run(click.Path):
    """The folder of a run, or `world`, the run that is part of the package."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """Returns the folder."""
        from jobi_tf.training.run_folder import run_path

        return super().convert(run_path(value), parameter, context)


RUN = _Run(exists=True, file_okay=False, path_type=Path)


def run_option(required: bool = True) -> Callable:
    """Adds the argument RUN and the option --run-dir: the folder of a run that is read."""
    return argument_or_option("run", "--run-dir", "RUN", RUN, "Folder of the run, or world.", required)


def runs_option(required: bool = True) -> Callable:
    """Adds the arguments RUN… and the option --run-dir, which are pooled if there are several, and --rules."""

    def decorate(command: Callable) -> Callable:
        rules = cloup.option("--rules", is_flag=True, help="Pool with the rules of the graph, which are mined first.")
        runs = argument_or_option("runs", "--run-dir", "RUN…", RUN, "Folder of the run, or world.", required, True)
        return runs(rules(command))

    return decorate


def open_runs(runs: tuple[Path, ...], rules: bool) -> "Run | Pool":
    """Opens a run, or pools several runs, or a run and rules."""
    import jobi_tf

    if len({path.resolve() for path in runs}) < len(runs):
        raise UsageError(f"expected every run once, got {', '.join(map(str, runs))}")
    loaded = [jobi_tf.load_run(run) for run in runs]
    if len(loaded) == 1 and not rules:
        return loaded[0]
    return jobi_tf.Pool(loaded, jobi_tf.RuleModel(loaded[0].graph) if rules else None)


def out_option(description: str, folder: bool = True, default: str | None = None, required: bool = False) -> Callable:
    """Adds --out: the folder or file that is written."""
    kind, metavar = (OUT_FOLDER, "DIR") if folder else (OUT_FILE, "FILE")
    return cloup.option("--out", type=kind, metavar=metavar, default=default, required=required, help=description)


def jobs_option(description: str) -> Callable:
    """Adds --jobs: the number of processes that train at a time."""
    return cloup.option("--jobs", type=COUNT, default=1, metavar="N", help=description)


json_option = cloup.option("--json", "as_json", is_flag=True, help="Print JSON.")
candidates_option = cloup.option(
    "--candidates", type=FILE, metavar="FILE", help="File with one entity name per line; only these are candidates."
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
    "--token-file", "token", type=FILE, metavar="FILE", callback=_read_token, help="Holds the token of requests."
)

# The settings of `jobi_tf.training.config.TrainConfig`, in the groups and the order of `jobi-tf train --help`.
SETTINGS = {
    "Recipe": "recipe minutes",
    "Data": "dataset split columns header weights",
    "Model": "model dim joint reciprocal warm_start entity_vectors freeze_entities",
    "Loss": "loss alpha answers_per_query pair_entities margin adversarial_temperature label_smoothing n3 n3_pair "
    "l2 dura entity_dropout relation_dropout relation_prediction",
    "Negatives": "p negatives negatives_mode chunk filter_negatives",
    "Optimizer": "optimizer learning_rate batch_size",
    "Schedule": "schedule epochs eval_every eval_first monitor patience",
    "Run": "run_dir seed checkpoint_every tensorboard profile",
    "Machine": "strategy devices logical_devices precision table_dtype",
}
WRITTEN_BY_COMMANDS = {"merged_from"}  # not settings of a training
GROUPS = {title: cloup.OptionGroup(title) for title in SETTINGS}
METAVARS = {
    "split": "SHARES",
    "columns": "H,R,T",
    "weights": "COLUMN",
    "devices": "all|0,1,…",
    "run_dir": "DIR",
    "dataset": "NAME|PATH",
    "recipe": "NAME|FILE",
    "warm_start": "RUN",
    "entity_vectors": "FILE",
    "checkpoint_every": "N|Nm",
    "tensorboard": "PARTS",
    "profile": "FIRST:LAST",
}


def settings_options(*names: str) -> Callable:
    """Adds an option for every field of `TrainConfig`, or for the named ones, in groups."""
    from jobi_tf.training.config import TrainConfig

    fields = TrainConfig.model_fields

    titles = {name: title for title, part in SETTINGS.items() for name in part.split()}

    def decorate(command: Callable) -> Callable:
        for name in reversed(names or [x for x in titles | fields if x not in WRITTEN_BY_COMMANDS]):
            group = None if names else GROUPS[titles.get(name, "Run")]
            command = _setting_option(name, fields[name], group)(command)
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
    shown |= {"type": _click_type(kind, field.metadata), "metavar": METAVARS.get(name)}
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
    return (click.IntRange if kind is int else click.FloatRange)(**bounds)


def parse_assignments(texts: Iterable[str], flag: str = "--set") -> dict[str, Any]:
    """Returns the settings of several `key=value`, the value being YAML; `flag` says in errors where they were given.

    Raises:
        UsageError: one is not of that form, or a key is given twice.
    """
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
        except yaml.YAMLError:
            raise UsageError(f"expected a YAML value after {key}=, got {value!r}") from None
    return settings
