"""`jobi-tf rules`."""

from pathlib import Path
from typing import Any

import click
import cloup

from jobi_tf.console import print_table, warn
from jobi_tf.evaluation.metrics import METRICS, metric_texts

from ..options import COUNT, POSITIVE, Command, dataset_options, opened, out_option
from ..start import start_tensorflow


@cloup.command(cls=Command)
@dataset_options
@cloup.option("--minutes", type=POSITIVE, default=5, help="Time limit for mining.")
@cloup.option("-k", type=COUNT, default=20, help="Number of rules to print, with a quarter as many exclusions.")
@out_option("TSV file of all rules, best first.", folder=False)
def rules(source: dict[str, Any], minutes: float, k: int, out: Path | None) -> None:
    """Mine the rules of a data set, and rank its validation and test triples by them alone.

    \b
      jobi-tf rules world
      jobi-tf rules umls --minutes 1 --out rules.tsv
      jobi-tf rules facts.tsv --split 0.8/0.1/0.1

    The body of a rule has one or two triples; X, Y and A are variables. The confidence is hits / (body + 5), where body
    is the number of pairs or entities for which the body holds in training, and hits is for how many of them the head
    holds.
    Rules also exclude candidates, which then rank last: pairs that two relations never share, and pairs (X, X) for a
    relation that never joins an entity with itself, if more than five cases are expected by chance.
    """
    start_tensorflow()
    import jobi_tf

    graph = jobi_tf.load_graph(**source)
    model = jobi_tf.RuleModel(graph, minutes)
    if not model.complete:
        warn(f"mining needs more than --minutes {minutes:g}: some rules are missing")
    if out is not None:
        with opened(out) as file:
            file.write("rule\tconfidence\thits\tbody\n")
            every = model.best(max(1, model.num_rules))
            file.writelines(f"{x.rule}\t{x.confidence:.6f}\t{x.hits}\t{x.body}\n" for x in every)
    rows = [[x.rule, f"{x.confidence:.3f}", f"{x.hits:,}", f"{x.body:,}"] for x in model.best(k)]
    print_table(["rule", "confidence", "hits", "body"], rows, f"{graph.name}, {model.num_rules:,} rules")
    if excluding := model.excluding(max(1, k // 4)):
        click.echo()
        rows = [[x.rule, f"{x.expected:,.0f}"] for x in excluding]
        print_table(["exclusion", "expected by chance"], rows, f"{graph.name}, exclusions")
    splits = [split for split in ("valid", "test") if len(graph.split(split))]
    cells = [[split, *metric_texts(jobi_tf.evaluate(model, split=split).metrics())] for split in splits]
    click.echo()
    print_table(["split", *METRICS.values()], cells, f"{graph.name}, rules alone, filtered ranks")
