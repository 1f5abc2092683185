import pytest

from jobi_tf.datasets import archives, load_graph
from jobi_tf.datasets.catalogue import DATASETS
from jobi_tf.datasets.check import check


@pytest.mark.parametrize(
    ("name", "entities", "relations", "train", "valid", "test"),
    [
        ("fb15k-237", 14541, 237, 272115, 17535, 20466),
        ("wn18rr", 40943, 11, 86835, 3034, 3134),
        ("umls", 135, 46, 5216, 652, 661),
        ("kinship", 104, 25, 8544, 1068, 1074),
        ("nations", 14, 55, 1592, 199, 201),
    ],
)
def test_counts_and_second_opening(shared, monkeypatch, name, entities, relations, train, valid, test):
    monkeypatch.setenv("JOBI_TF_ARCHIVES", str(shared / "data"))
    first = load_graph(name)
    assert (first.num_entities, first.num_relations) == (entities, relations)
    assert [len(first.splits[split]) for split in ("train", "valid", "test")] == [train, valid, test]
    assert first.train[:, [0, 2]].max() < entities

    monkeypatch.delenv("JOBI_TF_ARCHIVES")
    monkeypatch.setattr(archives, "find", None)
    second = load_graph(name)
    assert second.fingerprint == first.fingerprint
    assert second.sources["test"].where(0) == f"{DATASETS[name].file}/test.txt:1"


def test_check_of_fb15k_237(shared):
    report = check(load_graph("fb15k-237", archive=shared / "data" / "FB15k-237.tar.gz"))
    found = {(finding.check, finding.where): finding.count for finding in report.findings if finding.count}
    # It was built so that no entity pair of valid or test is linked in train, hence no answer leaks.
    assert found == {
        ("entities unseen in training", "valid"): 8,
        ("triples with unseen entities", "valid"): 9,
        ("entities unseen in training", "test"): 29,
        ("triples with unseen entities", "test"): 28,
    }
