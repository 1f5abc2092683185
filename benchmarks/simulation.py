"""`python -m benchmarks.simulation`: training on up to 64 machines, simulated from constants measured on one.

Each machine has two cores like those of `docs/scaling.md` and a network of 10 Gbit/s, and computes its own batches
of the same size: more machines train more triples in a step. Waiting for the slowest machine, and the switch, are left
out.
"""

import click

ENTITIES, WIDTH = 100_000_000, 200  # ComplEx, d = 100
BATCH, NEGATIVES, CHUNK = 1_000, 50, 10  # triples of a worker and step; shared by side
CORES, MS_PER_MB = 2, 0.8  # 10 Gbit/s
# CPU milliseconds of a step of one process, and of what several processes do for each MB beyond it: the table of
# `multi-worker` has (135 / 2 - 46 / 2) / 5.3 with two workers and (342 / 4 - 46 / 4) / 8.6 with four; with two servers
# two workers took 65 ms on both cores for 17.8 MB, (2 * 65 - 46) / 17.8, half of it in the servers.
COMPUTE, GATHERED, EXCHANGED = 46.0, 8.5, 4.7
MACHINES = (1, 2, 4, 8, 16, 32, 64)

ROWS = BATCH * (NEGATIVES // CHUNK + 2)  # distinct entities of a batch: of these, nearly all are distinct
TABLE = ENTITIES * WIDTH * 4 / 1e9  # GB


def multi_worker(machines: int) -> tuple[float, float]:
    """Returns triples a second, and the MB that each worker receives in a step."""
    received = (machines - 1) * ROWS * (4 * WIDTH + 4) / 1e6
    milliseconds = (COMPUTE + GATHERED * received) / CORES + MS_PER_MB * received
    return 1e3 * machines * BATCH / milliseconds, received


def parameter_servers(machines: int) -> tuple[float, float]:
    """Returns triples a second, and the MB of a step, with as many servers as workers, on machines of their own."""
    exchanged = 2 * ROWS * (4 * WIDTH + 8) / 1e6
    in_network_and_process = exchanged * (MS_PER_MB + EXCHANGED / 2 / CORES)
    return 1e3 * machines * BATCH / (COMPUTE / CORES + in_network_and_process), exchanged


def main() -> None:
    """Prints the table of the documentation."""
    columns = [
        f"`{strategy}`: {what}" for strategy in ("multi-worker", "parameter-server") for what in ("triples/s", "MB")
    ]
    click.echo(f"| workers | {' | '.join(columns)} |\n|{'---|' * 5}")
    for machines in MACHINES:
        cells = [f"{rate:,.0f} | {size:,.1f}" for rate, size in (multi_worker(machines), parameter_servers(machines))]
        click.echo(f"| {machines} | {' | '.join(cells)} |")
    click.echo(f"tables {TABLE:,.0f} GB, with Adam's moments {3 * TABLE:,.0f} GB")


if __name__ == "__main__":
    main()
