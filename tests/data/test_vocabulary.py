import numpy as np
import pytest

from jobi_tf.data.vocabulary import Vocabulary
from jobi_tf.errors import DataError

NAMES = ["Paris", "Zürich", "  two  spaces ", "東京", "a\rb", "a\u2028b", "tab\there", ""]


def test_names_and_ids():
    vocabulary = Vocabulary(NAMES, "entity")
    assert [vocabulary.id(name) for name in NAMES] == list(range(len(NAMES)))
    assert vocabulary.ids(["東京", "Paris"]).tolist() == [3, 0]
    assert vocabulary.ids([]).dtype == "int32"
    assert vocabulary[1] == "Zürich"
    assert "Paris" in vocabulary
    assert "paris" not in vocabulary
    assert all(text in repr(vocabulary) for text in ("8 entity", "'Zürich'", "…"))


@pytest.mark.parametrize("names", [NAMES, []])
def test_save_and_load_keep_every_character(tmp_path, names):
    Vocabulary(names, "entity").save(tmp_path / "names.txt")
    assert [*Vocabulary.load(tmp_path / "names.txt", "entity").names] == names


def test_one_name_is_no_list():
    with pytest.raises(DataError, match="list of entity names"):
        Vocabulary(NAMES, "entity").ids_of("Paris")


def test_numbers_that_may_be_names_are_ids_in_an_array_only():
    vocabulary = Vocabulary(["1", "0"], "entity")
    assert vocabulary.ids_of(np.array([1, 0])).tolist() == [1, 0]
    assert vocabulary.ids_of(["1", "0"]).tolist() == [0, 1]
    for both in ([1, 0], [2, 1]):
        with pytest.raises(DataError, match="1, which may be either"):
            vocabulary.ids_of(both)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Capitol", r"relation 'Capitol'.*'capital'"),
        ("xyz", r"relation 'xyz'(?!.*currency)"),  # nothing near is no hint
        (3, "got"),
        (["currency"], "got"),
    ],
)
def test_an_unknown_name_gets_the_nearest_spellings(name, words):
    with pytest.raises(DataError, match=words):
        Vocabulary(["currency", "capital", "neighbour"], "relation").id(name)
