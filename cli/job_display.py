"""What a person sees of trainings in processes of their own."""

from rich.console import Console
from rich.text import Text

from jobi_tf.training.bars import stderr_console


class JobDisplay:
    """Prints lines on stderr; a terminal also shows the state of each job that is running.

    Args:
        console: where to write; stderr by default.
    """

    def __init__(self, console: Console | None = None):
        self.console = console or stderr_console()
        self._status = self.console.status("") if self.console.is_terminal else None
        self._states: dict[str, str] = {}

    def __enter__(self) -> "JobDisplay":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def print(self, line: str) -> None:
        """Prints a line."""
        self.console.print(line, soft_wrap=True)

    def update(self, job: str, state: str | None) -> None:
        """Shows the state of a job on a terminal; None: it has ended."""
        if state is None:
            self._states.pop(job, None)
        else:
            self._states[job] = state
        if self._status:
            self._status.update(Text("\n".join(f"{name}: {text}" for name, text in self._states.items())))
            self._status.start()

    def close(self) -> None:
        """Takes the states off the terminal."""
        if self._status:
            self._status.stop()
