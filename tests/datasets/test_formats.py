import networkx
import pandas as pd
import pytest

import jobi_tf
from jobi_tf.datasets.reading import Columns, TripleReader
from jobi_tf.errors import DataError, UsageError
from tests.datasets.files import named_triples

TURTLE = """@prefix x: <http://x/> .
x:a x:near x:b , x:c ; x:population 7 .
x:b x:near x:a .
"""
NTRIPLES = '<http://x/a> <http://x/near> <http://x/b> .\n<http://x/a> <http://x/label> "a, b\\nc" .\n'


def read(path, columns=None):
    reader = TripleReader(columns)
    return named_triples(reader.graph("g", {"train": reader.read_file(path)}), "train")


def test_rdf_gives_the_triples_of_resources(tmp_path):
    (tmp_path / "g.ttl").write_text(TURTLE)
    (tmp_path / "g.nt").write_text(NTRIPLES)
    a, b, c, near = (f"http://x/{name}" for name in ("a", "b", "c", "near"))
    assert read(tmp_path / "g.ttl") == [(a, near, b), (a, near, c), (b, near, a)]
    assert read(tmp_path / "g.nt") == [(a, near, b)]
    for text, words in (("not RDF\n", ""), (NTRIPLES.splitlines()[1], ".*1 with literals")):
        (tmp_path / "g.nt").write_text(text)
        with pytest.raises(DataError, match=rf"g\.nt{words}"):
            read(tmp_path / "g.nt")


def test_parquet_takes_the_first_three_columns_or_the_chosen_ones(tmp_path):
    frame = pd.DataFrame({"u": ["a", "b, c"], "v": ["r", "r"], "w": ["b, c", "d"], "weight": [1.0, 2.5]})
    frame.to_parquet(tmp_path / "g.parquet")
    assert read(tmp_path / "g.parquet") == [("a", "r", "b, c"), ("b, c", "r", "d")]
    assert read(tmp_path / "g.parquet", Columns(["w", "v", "u"]))[0] == ("b, c", "r", "a")
    (tmp_path / "g.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"g\.parquet"):
        read(tmp_path / "g.parquet")


def test_parquet_has_its_names_as_a_header(tmp_path):
    path = tmp_path / "g.parquet"
    frame = pd.DataFrame({"u": ["a", "b"], "v": ["r", "r"], "w": ["b", "c"], "note": ["x", "line\nbreak"]})
    frame.to_parquet(path)
    assert read(path, Columns([3, 2, 1])) == [("b", "r", "a"), ("c", "r", "b")]
    frame.set_axis(["head", "tail", "relation", "note"], axis=1).to_parquet(path)
    assert read(path) == [("a", "b", "r"), ("b", "c", "r")]
    frame.set_axis(["head", "tail", "relation", "note"], axis=1).set_index("head").to_parquet(path)
    assert read(path) == [("a", "b", "r"), ("b", "c", "r")]
    frame.set_axis(["note", "head", "edge", "tail"], axis=1).to_parquet(path)
    with pytest.raises(DataError, match=r"g\.parquet, .*note, head, edge, tail"):
        read(path)
    frame.assign(weight=[1.0, 2.5]).to_parquet(path)
    assert TripleReader(Columns(weight="weight")).read_file(path).weights.tolist() == [1.0, 2.5]


@pytest.mark.parametrize("header", [True, False])
def test_the_option_header_is_for_text(tmp_path, header):
    (tmp_path / "g.nt").write_text(NTRIPLES)
    with pytest.raises(UsageError, match="header"):
        read(tmp_path / "g.nt", Columns(header=header))


def test_a_folder_of_parquet_files_is_a_data_set(tmp_path):
    rows = [("a", "r", "b"), ("b", "r", "c"), ("c", "r", "a")]
    for split in ("train", "valid", "test"):
        pd.DataFrame(rows, columns=["s", "p", "o"]).to_parquet(tmp_path / f"{split}.parquet")
    assert named_triples(jobi_tf.load_graph(tmp_path), "test") == rows


def test_a_networkx_graph_gives_its_edges():
    edges = networkx.MultiDiGraph()
    edges.add_edge("a", "b", relation="r")
    edges.add_edge("a", "b", relation="s")
    graph = jobi_tf.Graph.from_triples(edges)
    assert named_triples(graph, "train") == [("a", "r", "b"), ("a", "s", "b")]
    edges.add_edge("b", "c")
    with pytest.raises(DataError, match="relation"):
        jobi_tf.Graph.from_triples(edges)
    with pytest.raises(DataError, match="directed"):
        jobi_tf.Graph.from_triples(networkx.Graph([("a", "b", {"relation": "r"})]))


def test_missing_values_of_parquet_are_named_with_their_row(tmp_path):
    path = tmp_path / "g.parquet"
    pd.DataFrame({"u": pd.array([1, 2], "Int64"), "v": [b"r", b"r"], "w": [2, 3]}).to_parquet(path)
    assert read(path) == [("1", "r", "2"), ("2", "r", "3")]
    pd.DataFrame({"u": [1.0, 2.0], "v": ["r", "r"], "w": [2, 3]}).to_parquet(path)
    assert read(path) == [("1", "r", "2"), ("2", "r", "3")]
    pd.DataFrame({"u": pd.array([1, None], "Int64"), "v": ["r", "r"], "w": [2, 3]}).to_parquet(path)
    with pytest.raises(DataError, match=r"g\.parquet:2: .*empty"):
        read(path)


def test_nodes_without_a_name_have_the_same_one_each_time(tmp_path):
    path = tmp_path / "g.ttl"
    path.write_text("@prefix x: <http://x/> .\nx:a x:address [ x:city x:b ; x:street x:c ] .\n")
    assert read(path) == read(path)
    assert len(read(path)) == 3
    path.write_text("<a> <b> <#c> .\n")
    assert read(path) == [(f"file://{tmp_path}/a", f"file://{tmp_path}/b", f"file://{path}#c")]


def test_triples_of_rdf_have_no_lines(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.ttl").write_text(TURTLE)
    assert jobi_tf.load_graph(tmp_path).sources == {}
    assert jobi_tf.load_graph(tmp_path / "train.ttl", split="0.34/0.33/0.33").sources == {}
