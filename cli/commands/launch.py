"""`jobi-tf launch`."""

import click
import cloup

from jobi_tf.errors import UsageError

from ..options import Command


@cloup.command(cls=Command, context_settings={"ignore_unknown_options": True})
@cloup.option("--workers", type=click.IntRange(min=2), default=2, metavar="N", help="Number of processes.")
@cloup.argument("command", nargs=-1, metavar="-- train …", required=True)
def launch(workers: int, command: tuple[str, ...]) -> int:
    """Train by several processes on this machine.

    \b
      jobi-tf launch --workers 2 -- train --dataset fb15k-237 --run-dir runs/two
      jobi-tf launch --workers 2 -- train --resume runs/two

    Each process is a worker of TensorFlow's MultiWorkerMirroredStrategy with an equal part of each batch. The first one
    writes the run folder and shows its progress. If one ends, all do.
    """
    from jobi_tf import launch as processes

    if command[0] != "train":
        raise UsageError(f"expected `train` after --, got {command[0]!r}: other commands have no workers")
    return processes.launch(workers, command)
