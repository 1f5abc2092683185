"""Errors that are meant for a person: one sentence with what was expected, what came, and where."""


class JobiError(Exception):
    """Something failed that the reader can act on. The command line prints it and exits with status 1."""


class UsageError(JobiError, ValueError):
    """Options or arguments that cannot work. The command line prints it and exits with status 2."""


class DataError(JobiError, ValueError):
    """Input data that cannot be used; the message names the file, and the line where there is one."""


class MissingExtraError(JobiError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""
