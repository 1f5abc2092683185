"""`jobi-tf launch`."""

import click
import cloup

from jobi_tf.errors import UsageError

from ..options import COUNT, Command


@cloup.command(cls=Command, context_settings={"ignore_unknown_options": True})
@cloup.option("--workers", type=COUNT, default=2, help="Number of workers.")
@cloup.option("--servers", type=click.IntRange(min=0), default=0, help="Number of parameter servers; adds a chief.")
@cloup.argument("command", nargs=-1, metavar="-- COMMAND …", required=True)
def launch(workers: int, servers: int, command: tuple[str, ...]) -> None:
    """Train or evaluate with several processes on this machine.

    \b
      jobi-tf launch --workers 2 -- train fb15k-237 --run-dir runs/a
      jobi-tf launch --workers 2 -- train --resume runs/a
      jobi-tf launch --workers 2 --servers 2 -- train fb15k-237 --run-dir runs/b
      jobi-tf launch --workers 1 --servers 2 -- evaluate runs/b

    Each process is a worker of TensorFlow's MultiWorkerMirroredStrategy, which trains on an equal part of each batch.
    The first worker writes the run folder and shows the progress. If one fails, all are stopped.

    With --servers, parameter servers hold the embeddings. Each worker trains on its own batches without waiting for the
    others, and is restarted if it is killed. A separate process, the chief, writes the run folder. During evaluate, no
    process holds the whole table.
    """
    from jobi_tf import launch as processes

    if command[0] not in ("train", "evaluate"):
        raise UsageError(f"expected `train` or `evaluate` after --, got {command[0]!r}: other commands have no workers")
    if command[0] == "evaluate" and not servers:
        raise UsageError("expected --servers to be at least 1 for `evaluate`, got 0")
    if workers == 1 and not servers:
        raise UsageError("expected --workers to be at least 2 without --servers, got 1")
    raise SystemExit(processes.launch(workers, command, servers))
