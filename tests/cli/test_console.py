from jobi_tf.cli.console import print_table


def test_a_pipe_gets_whole_cells_however_long(capsys):
    print_table(["name", "score"], [["x" * 300, "1.5"], ["y", "20"]])
    lines = capsys.readouterr().out.splitlines()
    assert "x" * 300 + "    1.5" in lines[1]
    assert all(line == line.rstrip() for line in lines)
