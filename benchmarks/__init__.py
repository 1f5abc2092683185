"""Timing of jobi-tf on this machine, beside other libraries, another checkout and the committed figures.

`python -m benchmarks`, from the root of the repository. Each measurement runs in its own process (`worker.py`, and
a script for each library in `peers/`); `suites.py` says what is measured, `running.py` does so in turns, `results.py`
writes the figures and prints them.
"""
