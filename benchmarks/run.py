"""Runs benchmarks one after the other, whatever becomes of the others."""

import os
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from jobi_tf.errors import UsageError

from .figures import Unmeasured
from .registry import BENCHMARKS
from .report import Report
from .setting import Setting


def run(
    names: Sequence[str],
    setting: Setting,
    report: Report,
    output: Path,
    explain: Callable[[Exception], str | None] = lambda error: None,
) -> None:
    """Runs benchmarks, and writes what was measured after each of them, and also when this is interrupted.

    Args:
        names: names out of `BENCHMARKS`; they run in the order of the registry.
        setting: how to run them.
        report: what was measured is added to it.
        output: the JSON file.
        explain: gives the sentence for a failure, None for one that it does not know.

    Raises:
        UsageError: `output` cannot be written.
    """
    check_writable(output)
    for benchmark in (BENCHMARKS[name] for name in BENCHMARKS if name in names):
        setting.say(f"{benchmark.name}: {benchmark.description}")
        start = time.monotonic()
        try:
            for result in benchmark.function(setting):
                report.results.append(result)
        except Exception as error:  # the other benchmarks are still worth their time
            if os.environ.get("JOBI_TF_TRACEBACK"):
                traceback.print_exc()
            reason = explain(error) or f"{type(error).__name__}: {' '.join(str(error).split())}"
            report.results.append(Unmeasured(benchmark.name, reason, failed=True))
            setting.say(f"  failed: {reason}")
        finally:
            if "graph" in vars(setting):
                report.stand_in = setting.graph.name if setting.stand_in else None
            if report.results:
                report.write(output)
        setting.say(f"  {time.monotonic() - start:,.0f} s")


def check_writable(path: Path) -> None:
    """Refuses a file that cannot be written, before an hour is spent on its content.

    Raises:
        UsageError: its folder is missing or not writable, or it is a folder.
    """
    folder = path.absolute().parent
    if not folder.is_dir() or path.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"expected a file that can be written, in a folder that exists, got {path}")
