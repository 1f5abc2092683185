"""How a benchmark is to be run, and on what data."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from jobi_tf.data.graph import Graph
from jobi_tf.datasets import load_graph
from jobi_tf.datasets.catalogue import DATASETS, WORLD
from jobi_tf.datasets.synthetic import synthesize
from jobi_tf.datasets.writing import write_text
from jobi_tf.errors import JobiError

FB15K_237 = "fb15k-237"
_STAND_IN = (14_541, 237, 310_116)


@dataclass(frozen=True)
class Setting:
    """What all benchmarks share.

    Args:
        work: folder for files that nobody keeps.
        curves: folder for growth.csv and growth.png.
        repeats: measurements a figure.
        tiny: everything in a form that takes seconds and whose figures mean nothing.
        pythons: for peers by name, a Python that has them installed.
        say: tells the person who waits what is going on.
    """

    work: Path
    curves: Path
    repeats: int = 5
    tiny: bool = False
    pythons: Mapping[str, Path] = field(default_factory=dict)
    say: Callable[[str], None] = print

    @cached_property
    def graph(self) -> Graph:
        """FB15K-237; where it cannot be had, a synthetic graph of its size, which its name tells; `world` if tiny."""
        if self.tiny:
            return load_graph(WORLD)
        try:
            return load_graph(FB15K_237)
        except JobiError as problem:
            self.say(f"{DATASETS[FB15K_237].title} cannot be had: {problem}")
            self.say("a synthetic graph of the same size takes its place; no figure is comparable with those of others")
            return synthesize(*_STAND_IN)

    @property
    def stand_in(self) -> bool:
        """Whether `graph` is not the one that it should be."""
        return not self.tiny and self.graph.name != FB15K_237

    @cached_property
    def graph_text(self) -> Path:
        """A folder with `graph` as train.tsv, valid.tsv and test.tsv."""
        folder = self.work / "text"
        write_text(self.graph, folder)
        return folder

    @cached_property
    def home(self) -> Path:
        """A cache for prepared graphs that is not the user's."""
        return self.work / "home"


@contextmanager
def work_folder() -> Iterator[Path]:
    """Gives a folder that is gone afterwards; it takes 1.5 GB at most, and TMPDIR says where."""
    with tempfile.TemporaryDirectory(prefix="jobi-tf-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
