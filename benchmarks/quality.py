"""How long training takes until validation is as good as the paper's prototype."""

from collections.abc import Iterator

from jobi_tf.data.batches import steps_per_epoch
from jobi_tf.data.graph import SPLITS
from jobi_tf.data.occurrences import SIDES, KnownAnswers
from jobi_tf.evaluation.ranker import Ranker
from jobi_tf.evaluation.ranks import Ranks, rank_metrics
from jobi_tf.training.assembly import build_batches

from .figures import Figure, Ratio, Target, Unmeasured
from .setting import Setting
from .steps import Fit
from .training import paper_settings

HITS_AT_10, MOST_EPOCHS = 0.485, 15


def quality(setting: Setting) -> Iterator[Figure | Unmeasured]:
    """Trains with own and with shared negatives until validation Hits@10, filtered by all splits, is reached.

    Both have their default learning rates. Time is that of training alone: median step times steps.
    """
    seconds = {}
    for mode in ("own", "shared"):
        found = seconds_to_reach(0.01 if setting.tiny else HITS_AT_10, mode, setting)
        if found is None:
            yield Unmeasured("quality/time", f"Hits@10 was not reached with {mode} negatives", failed=not setting.tiny)
            return
        seconds[mode] = found
    yield Figure(
        "quality/time",
        f"training to validation Hits@10 {HITS_AT_10}, shared negatives",
        "s",
        [seconds["shared"]],
        setting.graph.name,
        Ratio("time with own / with shared negatives", [seconds["own"] / seconds["shared"]]),
        Target(">=", 2),
        once=True,
        note=f"{seconds['own']:.0f} s with own negatives; one seed",
    )


def seconds_to_reach(hits: float, mode: str, setting: Setting) -> float | None:
    """Returns the seconds of training until Hits@10 is `hits`, interpolated between epochs; None if it never is."""
    graph, settings = setting.graph, paper_settings(setting)
    fit = Fit(graph, steps_per_epoch(len(graph.train), settings["batch_size"]), negatives_mode=mode, **settings)
    ranker = Ranker(fit.model, KnownAnswers.of_graph(graph, SPLITS, graph.valid))
    total = before = 0.0
    for epoch in range(1, MOST_EPOCHS + 1):
        fit.batches = build_batches(fit.config, graph, first_step=(epoch - 1) * fit.steps)
        seconds = fit() * fit.steps
        ranks = Ranks.concatenate([ranker.rank(graph.valid, side) for side in range(len(SIDES))])
        now = rank_metrics(ranks.ranks())["hits@10"]
        setting.say(f"  {mode} negatives, epoch {epoch}: {seconds:.1f} s, validation Hits@10 {now:.4f}")
        if now >= hits:
            return total + seconds * (hits - before) / (now - before)
        total, before = total + seconds, now
    return None
