import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from jobi_tf.console import Bar, duration, print_table
from jobi_tf.training.config import TrainConfig
from jobi_tf.training.progress import Progress

LOSSES = {"loss": 12.3456, "triple_loss": 11.9876, "pair_loss": 0.3456}
RANKED = {"val_mrr": 0.31, "val_hits@1": 0.22, "val_hits@3": 0.33, "val_hits@10": 0.49}


def training(best: float, waited: int = 0):
    return SimpleNamespace(
        config=TrainConfig(dataset="umls", epochs=100, batch_size=1000, eval_every=2),
        graph=SimpleNamespace(valid=range(17535)),
        ranking=SimpleNamespace(due=True),
        best=SimpleNamespace(monitor="val_mrr", best=best, waited=waited, patience=3),
        steps=4,
        triples=4000,
        done=0,
        first_step=0,
    )


def console(terminal: bool, width: int = 80) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, highlight=False, color_system=None)


def watch(console: Console, display: Progress) -> list[str]:
    display.on_train_begin()
    for epoch in range(2):
        display.on_epoch_begin(epoch)
        for step in range(4):
            display.on_train_batch_end(step, LOSSES)
        done = LOSSES | {"triples_per_second": 123456.7, "seconds": 12.3}
        display.on_epoch_end(epoch, done | (RANKED if epoch % 2 else {}))
    display.on_train_end()
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("best", "verdict"), [(0.3, "best so far"), (0.4, "no better for 2 of 3")])
def test_a_log_gets_lines(best, verdict):
    plain = console(terminal=False)
    assert watch(plain, Progress(training(best, 1), plain)) == [
        "epoch   1/100  loss 12.346 (triple 11.988, pair 0.346)  123,457 triples/s  12 s",
        "epoch   2/100  loss 12.346 (triple 11.988, pair 0.346)  123,457 triples/s  12 s",
        f"  validation: MRR 0.310  Hits@1/3/10 0.220 0.330 0.490  {verdict}",
    ]


def test_the_rest_of_an_epoch_goes_on_where_it_was(monkeypatch):
    monkeypatch.setattr("jobi_tf.console.SECONDS_BETWEEN_LINES", 0)
    plain, resumed = console(terminal=False), training(0)
    resumed.first_step = 2
    display = Progress(resumed, plain)
    display.on_train_begin()
    display.on_epoch_begin(0)
    display.on_train_batch_end(0, LOSSES)
    assert "3,000/4,000 triples" in plain.file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_long_work_shows_amount_rate_and_time_left(monkeypatch, terminal):
    monkeypatch.setattr("jobi_tf.console.SECONDS_BETWEEN_LINES", 0)
    screen = console(terminal)
    with Bar(1000, "triples", "ranking", screen) as bar:
        bar.update(400)
        bar._bars.refresh()
        output = screen.file.getvalue()
    assert all(words in output for words in ("ranking", "triples/s", "left"))
    assert ("━" in output) == terminal
    assert ("400/1,000" in output) == (not terminal)
    assert ("\x1b" in output) == terminal


@pytest.mark.parametrize("width", [80, 140])
def test_a_terminal_gets_a_bar(width):
    terminal = console(terminal=True, width=width)
    display = Progress(training(0), terminal)
    display.on_train_begin()
    display.on_epoch_begin(0)
    display.on_train_batch_end(1, LOSSES)
    display.bar._bars.refresh()
    bar = terminal.file.getvalue().splitlines()[-1].rpartition("\x1b[2K")[2]
    assert "epoch   1/100 ━" in bar
    assert "loss 12.346" in bar
    assert ("pair 0.346" in bar) == (width == 140)
    assert bar.rstrip().endswith(" s")  # the text is not cut
    display.on_epoch_begin(1)
    display.on_train_batch_end(3, LOSSES)
    display.bar._bars.refresh()
    assert "ranking 17,535" in terminal.file.getvalue()
    display.bar.close()
    display.bar.close()
    assert "\x1b[?25h" in terminal.file.getvalue()  # the cursor is shown again


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s"), (7812, "2 h 10 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_a_pipe_gets_whole_cells_however_long(capsys):
    print_table(["name", "score"], [["x" * 300, "1.5"], ["y", "20"]])
    lines = capsys.readouterr().out.splitlines()
    assert "x" * 300 + "    1.5" in lines[1]
    assert all(line == line.rstrip() for line in lines)


def test_a_row_of_a_table_is_a_line_whatever_its_names_hold(capsys):
    names = ["a\u2028b", "c\x85d"]
    print_table(["name", "n"], [[name, 1] for name in names])
    assert [line.split("  ")[0] for line in capsys.readouterr().out.split("\n")[1:-1]] == names


def test_a_terminal_too_narrow_for_a_table_gets_whole_cells(capsys, monkeypatch):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "20"}.items():
        monkeypatch.setenv(name, value)
    print_table(["name", "triples", "description"], [["fb15k-237", 272115, "a longer text than fits"]])
    assert "fb15k-237  272,115  a longer text than fits" in capsys.readouterr().out
