"""Timing of jobi-tf on the machine at hand, beside other libraries and beside committed figures."""
