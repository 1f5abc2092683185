"""A picture of a search: history, importances, parallel coordinates."""

import itertools
import math
import warnings
from typing import TYPE_CHECKING, Any

from jobi_tf.errors import MissingExtraError
from jobi_tf.evaluation.metrics import METRICS
from jobi_tf.experiments.search_progress import format_value
from jobi_tf.experiments.search_results import Results, Trial
from jobi_tf.experiments.space_parts import Parameter
from jobi_tf.files import written_beside

if TYPE_CHECKING:
    import optuna
    from matplotlib.axes import Axes

FEWEST_FOR_IMPORTANCES = 4


def plot_search(results: Results) -> None:
    """Writes `search.png`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing a search needs matplotlib: pip install 'jobi-tf[plot]'") from None
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=(3, 2))
    _draw_history(figure.add_subplot(grid[0, 0]), results)
    _draw_importances(figure.add_subplot(grid[0, 1]), importances(results))
    _draw_coordinates(figure.add_subplot(grid[1, :]), results)
    with written_beside(results.folder.plot) as beside:
        figure.savefig(beside, dpi=120, format="png")


def importances(results: Results) -> dict[str, float]:
    """Returns the share of each setting in how good trials are (PED-ANOVA); none for too few trials."""
    import optuna

    complete = results.ranked()
    if len(complete) < FEWEST_FOR_IMPORTANCES or complete[0].value == complete[-1].value:
        return {}
    study = optuna.create_study(direction="maximize")
    study.add_trials([_in_memory(trial, results.space.parameters) for trial in complete])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the evaluator is new
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return optuna.importance.get_param_importances(study, evaluator=evaluator)


def _in_memory(trial: Trial, parameters: tuple[Parameter, ...]) -> "optuna.trial.FrozenTrial":
    import optuna

    used = {p.name: _distribution(p) for p in parameters if p.name in trial.params}
    return optuna.trial.create_trial(
        params={name: trial.params[name] for name in used}, distributions=used, value=trial.value
    )


def _distribution(parameter: Parameter) -> Any:
    from optuna import distributions

    if parameter.choices is not None:
        return distributions.CategoricalDistribution(parameter.choices)
    if parameter.kind is int:
        return distributions.IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log)
    return distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log)


def _draw_history(axes: "Axes", results: Results) -> None:
    from matplotlib.ticker import MaxNLocator

    for state, colour, marker in (("complete", "tab:blue", "o"), ("pruned", "tab:gray", "x")):
        part = [trial for trial in results.trials if trial.state == state and trial.value is not None]
        if part:
            values = [trial.value or 0.0 for trial in part]
            axes.scatter([trial.number for trial in part], values, c=colour, marker=marker, s=22, label=state)
    complete = sorted((trial.number, trial.value or 0.0) for trial in results.ranked())
    best = list(itertools.accumulate((value for _, value in complete), max))
    numbers = [number for number, _ in complete] + [results.trials[-1].number]
    axes.step(numbers, [*best, best[-1]], where="post", color="tab:red", label="best so far")
    axes.set(xlabel="trial", ylabel=f"validation {METRICS[results.space.metric]}", title="history")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=8)


def _draw_importances(axes: "Axes", shares: dict[str, float]) -> None:
    axes.set(title="importance of settings (PED-ANOVA)")
    if not shares:
        axes.text(0.5, 0.5, f"{FEWEST_FOR_IMPORTANCES} different results are needed", ha="center", va="center")
        axes.set_axis_off()
        return
    names = list(shares)[::-1]
    bars = axes.barh(names, [shares[name] for name in names], color="tab:blue")
    axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
    axes.margins(x=0.12)


def _draw_coordinates(axes: "Axes", results: Results) -> None:
    from matplotlib import colormaps

    parameters, ranked = results.space.parameters, results.ranked()
    values = [trial.value or 0.0 for trial in ranked]
    low, high = min(values), max(values)
    for trial, value in reversed(list(zip(ranked, values, strict=True))):  # the best above the others
        shade = (value - low) / (high - low) if high > low else 1.0
        # A line passes over the axis of a setting that did not vary in its trial.
        points = [(i, _height(p, trial.params[p.name])) for i, p in enumerate(parameters) if p.name in trial.params]
        axes.plot(
            *zip(*points, (len(parameters), shade), strict=True), color=colormaps["viridis"](1 - shade), alpha=0.7
        )
    for i, parameter in enumerate(parameters):
        for height, label in _ticks(parameter):
            axes.annotate(label, (i, height), xytext=(4, 0), textcoords="offset points", fontsize=7, va="center")
    for height, value in ((0.0, low), (1.0, high)):
        axes.annotate(f"{value:.4f}", (len(parameters), height), xytext=(4, 0), textcoords="offset points", fontsize=7)
    for i in range(len(parameters) + 1):
        axes.axvline(i, color="black", lw=0.6)
    axes.set_xticks([*range(len(parameters) + 1)], [*(p.name for p in parameters), METRICS[results.space.metric]])
    axes.set(title="complete trials, the best darkest", yticks=[], xlim=(-0.1, len(parameters) + 0.4))


def _height(parameter: Parameter, value: Any) -> float:
    """Returns where a value stands on its axis, from 0 to 1."""
    if parameter.choices is not None:
        return parameter.choices.index(value) / max(1, len(parameter.choices) - 1)
    low, high, at = parameter.low, parameter.high, value
    if parameter.log:
        low, high, at = math.log(low), math.log(high), math.log(value)
    return (at - low) / (high - low) if high > low else 0.0


def _ticks(parameter: Parameter) -> list[tuple[float, str]]:
    ends = (parameter.low, parameter.high)
    values = parameter.choices if parameter.choices is not None else ends
    return [(_height(parameter, value), format_value(value)) for value in values]
