"""One self-contained HTML page about runs on the same graph."""
