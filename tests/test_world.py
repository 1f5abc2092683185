from collections import Counter, defaultdict
from importlib.resources import files

import numpy as np
import pytest

import jobi_tf
from jobi_tf.report.runs import stored_ranks

SPLITS = ("train", "valid", "test")
TAIL_KIND = {
    "calling_code": "calling code",
    "calling_zone": "calling zone",
    "capital": "city",
    "clock": "clock",
    "continent": "region",
    "currency": "currency",
    "member_of": "union",
    "neighbour": "country",
    "official_language": "language",
    "part_of": "region",
    "regional_language": "language",
    "script": "script",
    "spoken_language": "language",
    "sub_region": "region",
    "time_zone": "time zone",
    "week_starts_on": "day",
}
HEAD_KIND = {"part_of": "region", "script": "language"}  # all others say something about a country
FACTS = """
France capital Paris
Singapore capital Singapore_(city)
Jamaica capital Kingston_(Jamaica)
Brazil neighbour Argentina
Portugal neighbour Spain
Switzerland official_language German
Switzerland official_language Italian
Japan currency Japanese_Yen
Germany currency Euro
Croatia member_of Eurozone
Kenya sub_region Eastern_Africa
Chile continent South_America
Western_Europe part_of Europe
Italy calling_code +39
Canada calling_code +1
Ukraine time_zone Eastern_European_Time
Norway member_of United_Nations
Russian script Cyrillic_script
"""
NOT_FACTS = """
Norway member_of European_Union
Sweden member_of Eurozone
Australia neighbour New_Zealand
Vietnam continent Africa
"""


def parse(text):
    rows = [line.split() for line in text.strip().split("\n")]
    return [(head.replace("_", " "), relation, tail.replace("_", " ")) for head, relation, tail in rows]


@pytest.fixture(scope="module")
def texts():
    folder = files("jobi_tf.datasets.world")
    return {name: folder.joinpath(f"{name}.tsv").read_bytes().decode("utf-8") for name in SPLITS}


@pytest.fixture(scope="module")
def splits(texts):
    return {name: [tuple(line.split("\t")) for line in text.split("\n")[:-1]] for name, text in texts.items()}


@pytest.fixture(scope="module")
def triples(splits):
    return [triple for name in SPLITS for triple in splits[name]]


@pytest.fixture(scope="module")
def tails(triples):
    """relation -> head -> set of tails."""
    table = defaultdict(lambda: defaultdict(set))
    for head, relation, tail in triples:
        table[relation][head].add(tail)
    return table


def test_no_triple_twice(triples):
    assert [triple for triple, count in Counter(triples).items() if count > 1] == []


@pytest.mark.parametrize("name", SPLITS)
def test_lines(texts, splits, name):
    assert "\r" not in texts[name]
    assert texts[name].endswith("\n")
    assert {len(triple) for triple in splits[name]} == {3}
    assert splits[name] == sorted(splits[name])


def test_names_are_clean(triples):
    names = {name for triple in triples for name in triple}
    assert [name for name in names if not name or name != name.strip() or "  " in name or not name.isprintable()] == []


def test_every_name_is_one_kind_of_thing(triples):
    kinds = defaultdict(set)
    for head, relation, tail in triples:
        kinds[head].add(HEAD_KIND.get(relation, "country"))
        kinds[tail].add(TAIL_KIND[relation])
    assert {name: kind for name, kind in kinds.items() if len(kind) > 1} == {}


def test_held_out_names_are_known_in_training(splits):
    seen = Counter(name for head, _, tail in splits["train"] for name in (head, tail))
    relations = {relation for _, relation, _ in splits["train"]}
    for head, relation, tail in splits["valid"] + splits["test"]:
        assert min(seen[head], seen[tail]) >= 3, (head, relation, tail)
        assert relation in relations


def test_capitals_are_never_held_out(splits):
    assert {relation for _, relation, _ in splits["valid"] + splits["test"]}.isdisjoint({"capital", "part_of"})


def test_neighbours_are_symmetric(tails):
    borders = tails["neighbour"]
    assert [(a, b) for a, others in borders.items() for b in others if a == b or a not in borders.get(b, ())] == []


def test_a_capital_belongs_to_one_country(tails):
    capitals = tails["capital"]
    assert {len(cities) for cities in capitals.values()} == {1}
    assert len({city for cities in capitals.values() for city in cities}) == len(capitals)
    assert set(tails["sub_region"]) - set(capitals) == {"Bonaire, Saint Eustatius and Saba", "Tokelau"}  # have none


def test_regions_nest(tails):
    above, regions, continents = tails["part_of"], tails["sub_region"], tails["continent"]
    assert {len(names) for table in (above, regions, continents) for names in table.values()} == {1}
    assert regions.keys() == continents.keys()
    for country, (region,) in regions.items():
        # South America is a sub-region and a continent at once.
        expected = {region} if region == "South America" else above[region]
        assert continents[country] == expected, country


def test_every_country_has_a_region(triples, tails):
    countries = {head for head, relation, _ in triples if relation not in HEAD_KIND}
    assert countries == set(tails["sub_region"])


def test_euro_countries_of_the_union_are_the_eurozone(tails):
    union = {country for country, unions in tails["member_of"].items() if "European Union" in unions}
    zone = {country for country, unions in tails["member_of"].items() if "Eurozone" in unions}
    assert zone == {country for country in union if "Euro" in tails["currency"][country]}
    assert len(union) == 27
    assert len(tails["member_of"]) == 193


def test_calling_zone_is_the_first_digit_of_the_code(tails):
    for country, (code,) in tails["calling_code"].items():
        assert tails["calling_zone"][country] == {f"Calling zone {code[1]}"}


@pytest.mark.parametrize("fact", parse(FACTS))
def test_well_known_fact(triples, fact):
    assert fact in triples


@pytest.mark.parametrize("fact", parse(NOT_FACTS))
def test_well_known_falsehood(triples, fact):
    assert fact not in triples
    assert set(fact) <= {name for triple in triples for name in triple}


def test_readme_counts(triples, splits):
    readme = files("jobi_tf.datasets.world").joinpath("README.md").read_text(encoding="utf-8")
    relations = {relation for _, relation, _ in triples}
    entities = {name for head, _, tail in triples for name in (head, tail)}
    assert f"{len(triples):,} triples, {len(relations)} relations, {len(entities):,} entities" in readme
    for relation in relations:
        counts = [str(sum(r == relation for _, r, _ in splits[name])) for name in SPLITS]
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{relation}` |"))
        assert [cell.strip() for cell in row.split("|")[3:6]] == counts


def test_the_run_of_the_package_fits_the_data_set():
    run = jobi_tf.load_run("world")
    assert run.graph.fingerprint == jobi_tf.load_graph("world").fingerprint
    mrr = jobi_tf.evaluate(run).metrics()["mrr"]
    assert mrr > 0.5
    assert np.mean(1 / stored_ranks(run.path)) == pytest.approx(mrr, rel=1e-3)  # for `jobi-tf runs compare`
    assert {"Austria", "Germany"} <= {x.entity for x in run.tails("Switzerland", "neighbour", k=6)}
