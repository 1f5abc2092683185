"""Other libraries on the same data and machine, in turns with jobi-tf."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from jobi_tf.errors import JobiError

from .child import run
from .environments import PEERS, Peer, environment
from .figures import Figure, Ratio, Target, Unmeasured
from .ranking import ranked
from .setting import Setting
from .steps import Fit
from .training import paper_settings, steps

# What jobi-tf aims at, for what a script prints: times the peer's rate.
TARGETS = {
    ("pykeen", "train"): Target(">=", 10),
    ("pykeen", "rank"): Target(">=", 60),
    ("ampligraph", "train"): Target(">=", 2.5),
    ("libkge", "train-shared"): Target(">=", 8),
}
WHAT = {
    "train": "training, ComplEx",
    "train-shared": "training, ComplEx, shared negatives",
    "rank": "filtered ranking, both sides",
}
OURS = {"train": "JoBi ComplEx", "train-shared": "JoBi ComplEx, shared negatives", "rank": "ranking"}
_PUBLISHED = "a ratio with a peer is only given where it was timed in the same run"
_LINE = re.compile(r"PEER (\S+) (\S+) ([0-9.eE+-]+)")


def peers(setting: Setting) -> Iterator[Figure | Unmeasured]:
    """Times peers and jobi-tf in turns; every round is a new process of the peer."""
    ours = Ours(setting)
    for peer in PEERS.values():
        try:
            python = setting.pythons.get(peer.name) or environment(peer, setting.say)
        except JobiError as problem:
            yield Unmeasured(f"peers/{peer.name}", f"not timed: {problem}; {_PUBLISHED}")
            continue
        try:
            yield from compare(setting, ours, peer, python)
        except JobiError as problem:
            yield Unmeasured(f"peers/{peer.name}", f"not timed: {problem}", failed=True)


class Ours:
    """jobi-tf in this process; what it measures has the names that the peers' scripts use."""

    def __init__(self, setting: Setting):
        settings, graph = paper_settings(setting), setting.graph
        self.fits = {
            name: Fit(graph, steps(setting), negatives_mode=mode, **settings)
            for name, mode in (("train", "own"), ("train-shared", "shared"))
        }
        self.triples = np.asarray(graph.test)
        self.rank = ranked(self.fits["train"].model, graph, self.triples)
        self.rates()  # the first time does not count

    def rates(self) -> dict[str, float]:
        """Returns triples a second of one round."""
        rates = {name: fit.batch / fit() for name, fit in self.fits.items()}
        return {**rates, "rank": len(self.triples) / self.rank()}


def compare(setting: Setting, ours: Ours, peer: Peer, python: Path) -> Iterator[Figure]:
    """Yields the figures of a peer, each with how many times faster jobi-tf was in the same round."""
    theirs_by_round, ours_by_round = [], []
    for turn in range(setting.repeats):
        setting.say(f"  {peer.title}, round {turn + 1} of {setting.repeats}")
        theirs_by_round.append(peer_rates(setting, peer, python))
        ours_by_round.append(ours.rates())
    for name, beside in pairs(theirs_by_round[0]):
        theirs = [rates[name] for rates in theirs_by_round]
        own = [rates[beside] for rates in ours_by_round]
        yield Figure(
            f"peers/{peer.name}-{beside}",
            f"{peer.title} {WHAT[name]}",
            "triples/s",
            theirs,
            setting.graph.name,
            Ratio.pairwise(f"jobi-tf's {OURS[beside]} / {peer.title}", own, theirs),
            TARGETS.get((peer.name, name)) if beside == name else None,
        )


def pairs(theirs: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields what a peer timed with what of ours it is divided by; shared negatives beside own, if it has no others."""
    for name in theirs:
        yield name, name
        if name == "train" and "train-shared" not in theirs:
            yield name, "train-shared"


def peer_rates(setting: Setting, peer: Peer, python: Path) -> dict[str, float]:
    """Runs a peer's script once and returns triples a second of what it timed.

    Raises:
        JobiError: it failed, or printed nothing of the kind.
    """
    settings = paper_settings(setting)
    sizes = [200, 20] if setting.tiny else [20_000, 512 if peer.name == "ampligraph" else 2048]
    arguments = [*sizes, settings["dim"], settings["batch_size"], settings["negatives"]]
    command = [str(python), str(peer.script), str(setting.graph_text), *map(str, arguments)]
    lines, error = run(command, setting.say)
    if error is not None:
        raise JobiError(f"{peer.script.name} failed: {error}")
    found = {match[2]: float(match[3]) for line in lines if (match := _LINE.fullmatch(line.strip()))}
    if not found.keys() <= WHAT.keys() or not found:
        raise JobiError(f"expected lines `PEER {peer.name} train 123` of {peer.script.name}, got {lines[-3:]}")
    return found
