import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from jobi_tf.training import progress
from jobi_tf.training.bars import duration
from jobi_tf.training.progress import Progress

LOSSES = {"loss": 12.3456, "triple_loss": 11.9876, "pair_loss": 0.3456}
RANKED = {"val_mrr": 0.31, "val_hits@1": 0.22, "val_hits@3": 0.33, "val_hits@10": 0.49}


def training(**state):
    return SimpleNamespace(
        config=SimpleNamespace(epochs=100, batch_size=1000, eval_every=2, patience=3),
        graph=SimpleNamespace(valid=range(17535)),
        stopping=SimpleNamespace(state={"waited": 0} | state),
        steps=4,
        triples=4000,
        done=0,
    )


def watch(console: Console, display: Progress, epochs: int = 2, **losses: float) -> str:
    display.on_train_begin()
    for epoch in range(epochs):
        display.on_epoch_begin(epoch)
        for step in range(4):
            display.on_train_batch_end(step, losses)
        done = losses | {"triples_per_second": 123456.7, "seconds": 12.3}
        display.on_epoch_end(epoch, done | (RANKED if epoch % 2 else {}))
    display.on_train_end()
    return console.file.getvalue()


def console(terminal: bool, width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, color_system=None)


def test_plain_lines():
    plain = console(terminal=False)
    assert watch(plain, Progress(training(), plain), **LOSSES).splitlines() == [
        "epoch   1/100  loss 12.346 (triple 11.988, pair 0.346)  123,457 triples/s  12 s",
        "epoch   2/100  loss 12.346 (triple 11.988, pair 0.346)  123,457 triples/s  12 s",
        "  validation: MRR 0.310  Hits@1/3/10 0.220 0.330 0.490  best so far",
    ]


def test_without_pair_head_and_without_luck():
    plain = console(terminal=False)
    said = watch(plain, Progress(training(waited=2), plain), loss=1.0, triple_loss=1.0)
    assert "loss 1.000  123,457" in said
    assert said.endswith("no better for 2 of 3\n")


def test_a_long_epoch_is_heard_of(monkeypatch):
    plain = console(terminal=False)
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0)
    said = watch(plain, Progress(training(), plain), epochs=1, **LOSSES)
    assert "epoch   1/100  step 1/4  " in said
    assert " left " in said
    assert "\x1b" not in said
    assert "\r" not in said


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_gets_a_bar(width):
    terminal = console(terminal=True, width=width)
    display = Progress(training(), terminal)
    display.on_train_begin()
    display.on_epoch_begin(0)
    display.on_train_batch_end(1, LOSSES)
    display._bars.refresh()
    bar = terminal.file.getvalue().splitlines()[-1].rpartition("\x1b[2K")[2]
    assert "epoch   1/100 ━" in bar
    assert "loss 12.346" in bar
    assert ("pair 0.346" in bar) == (width == 140)
    assert bar.rstrip().endswith(" s")
    display.on_epoch_begin(1)
    display.on_train_batch_end(3, LOSSES)
    display._bars.refresh()
    assert "ranking 17,535 validation triples" in terminal.file.getvalue()
    display.close()
    display.close()
    assert "\x1b[?25h" in terminal.file.getvalue()  # the cursor is there again


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s"), (7812, "2 h 10 min")],
)
def test_duration(seconds, words):
    assert duration(seconds) == words
