import io

from rich.console import Console

from jobi_tf.experiments.search_progress import SearchProgress
from jobi_tf.experiments.search_results import Results, SearchFolder, Trial
from jobi_tf.experiments.spaces import parse_space

SPACE = parse_space({"settings": {"dataset": "world"}, "search": {"dim": [2, 4, 6]}, "sampler": "grid"}, "mine", "mine")


def results(tmp_path, *trials):
    return Results(SPACE, SearchFolder(tmp_path), trials)


def watch(console: Console, tmp_path) -> str:
    done = Trial(0, "complete", {"dim": 2}, 0.25, {"hits@10": 0.25}, 4, 9, 65.0)
    pruned = Trial(1, "pruned", {"dim": 4}, 0.125, {"hits@10": 0.125}, 5, 5, 3.0)
    failed = Trial(2, "failed", {"dim": 6}, reason="the loss became nan")
    display = SearchProgress(console)
    display.begun(results(tmp_path))
    display.trial_begun(0, {"dim": 2})
    display.epoch(0, 3, 9)
    display._bars.refresh()
    for i, trial in enumerate((done, pruned, failed)):
        display.trial_begun(i, trial.params)
        display.trial_ended(i, results(tmp_path, *(done, pruned, failed)[: i + 1]))
    display._bars.refresh()
    display.close()
    display.close()
    return console.file.getvalue()


def console(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, highlight=False, color_system=None)


def test_plain_lines(tmp_path):
    assert watch(console(terminal=False), tmp_path).splitlines() == [
        "search    grid, 3 trials, by validation Hits@10",
        f"folder    {tmp_path}",
        "1/3  trial 0  Hits@10 0.2500  1 min 5 s  dim 2  best so far",
        "2/3  trial 1  pruned at epoch 5  Hits@10 0.1250  3.0 s  dim 4",
        "3/3  trial 2  failed: the loss became nan  (dim 6)",
    ]


def test_a_terminal_gets_a_bar(tmp_path):
    said = watch(console(terminal=True), tmp_path)
    bars = said.split("\x1b[2K")
    assert any("0/3" in bar and "trial 0: 3/9" in bar for bar in bars)
    assert any("3/3" in bar and "best 0.2500 (trial 0)" in bar for bar in bars)
    assert said.rstrip().endswith("\x1b[2K")
    assert "\x1b[?25h" in said  # the cursor is there again
