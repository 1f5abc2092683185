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


def test_save_and_load_keep_every_character(tmp_path):
    Vocabulary(NAMES, "entity").save(tmp_path / "names.txt")
    assert Vocabulary.load(tmp_path / "names.txt", "entity").names == NAMES


def test_one_name_is_no_list():
    with pytest.raises(DataError, match="list of entity names"):
        Vocabulary(NAMES, "entity").ids_of("Paris")


def test_no_names(tmp_path):
    Vocabulary([], "entity").save(tmp_path / "names.txt")
    assert len(Vocabulary.load(tmp_path / "names.txt", "entity")) == 0


def test_an_unknown_name_gets_the_nearest_spellings():
    with pytest.raises(DataError, match=r"relation 'Capitol'.*'capital'"):
        Vocabulary(["currency", "capital", "neighbour"], "relation").id("Capitol")


@pytest.mark.parametrize("name", [3, ["currency"]])
def test_a_name_is_a_text(name):
    with pytest.raises(DataError, match="got"):
        Vocabulary(["currency"], "relation").id(name)


def test_nothing_near_is_no_hint():
    with pytest.raises(DataError, match="relation 'xyz'") as error:
        Vocabulary(["currency"], "relation").id("xyz")
    assert "currency" not in str(error.value)
