"""The command `jobi-tf`."""
