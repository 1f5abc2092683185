import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from jobi_tf.export import export_run
from tests.export.asking import load, named, random_ids

SOURCE = Path(__file__).with_name("load_saved_model.cc")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    wheel = Path(tf.sysconfig.get_lib())
    if not (wheel / "libtensorflow_cc.so.2").exists():
        pytest.skip(f"needs libtensorflow_cc.so.2 in {wheel}")
    binary = tmp_path_factory.mktemp("cpp") / "load_saved_model"
    command = ["g++", "-w", "-O1", SOURCE, "-o", binary, *tf.sysconfig.get_compile_flags()]
    # Without --no-as-needed the linker drops the library that registers the sessions.
    command += ["-Wl,--no-as-needed", f"-L{wheel}", "-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    command += [f"-Wl,-rpath,{wheel}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return binary


def ask_cpp(program, folder, requests):
    """Returns the outputs of each (signature, inputs), or its error's code and message."""
    lines = []
    for signature, inputs in requests:
        lines += [signature, *("\t".join(map(str, (name, *values))) for name, values in inputs.items()), ""]
    text = "\n".join(lines) + "\n"
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run([program, folder], input=text, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = done.stdout.split("\n\n")[:-1]
    return [{row[0]: row[1:] for row in (line.split("\t") for line in answer.split("\n"))} for answer in answers]


@pytest.mark.parametrize("options", [{}, {"typed": True, "dtype": "float16"}, {"candidates": "names.txt", "top_k": 4}])
def test_every_signature_answers_as_in_python(run, program, tmp_path, options):
    (tmp_path / "names.txt").write_text("entity 1\nentity 2\n0\n東京\nŁódź\n", encoding="utf-8")
    if "candidates" in options:
        options = {**options, "candidates": tmp_path / options["candidates"]}
    exported = export_run(run, tmp_path / "exports", **options)
    moved = exported.path.rename(tmp_path / "elsewhere")
    triples = random_ids(run.graph, 50)
    head, relation, tail = zip(*named(run.graph, triples), strict=True)
    head = ("who", *head[1:])
    k = [i % 6 for i in range(50)]
    requests = [
        ("serving_default", {"head": head, "relation": relation, "tail": tail}),
        ("score_ids", dict(zip(("head", "relation", "tail"), triples.T.tolist(), strict=True)) | {"head": range(50)}),
        ("predict_tails", {"head": head, "relation": relation, "k": k}),
        ("predict_heads", {"relation": relation, "tail": tail, "k": k}),
        ("predict_new_tails", {"head": head, "relation": relation, "k": k}),
        ("predict_new_heads", {"relation": relation, "tail": tail, "k": k}),
        ("embed", {"entity": head}),
        ("predict_tails", {"head": head, "relation": relation, "k": [1]}),
    ]
    *answers, error = ask_cpp(program, moved, requests)
    ask = load(moved)
    for (signature, inputs), got in zip(requests, answers, strict=False):
        expected = ask(signature, **inputs)
        assert got.keys() == expected.keys()
        for name, values in expected.items():
            if values.dtype == np.float32:
                np.testing.assert_allclose(np.array(got[name], np.float32), values.ravel(), rtol=1e-5, atol=1e-6)
            else:
                assert got[name] == [str(int(x) if values.dtype == bool else x) for x in values.flat]
    assert error["error"][0] == str(tf.errors.INVALID_ARGUMENT)
