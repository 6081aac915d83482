from stagemesh.pipeline.problems import MeshFileError, Problem, path_text


def test_a_path_reads_as_people_write_it() -> None:
    path = ("pipelines", "talk", "stages", "talker", "inputs", 0, "from")
    assert path_text(path) == "pipelines.talk.stages.talker.inputs[0].from"
    assert path_text(()) == ""


def test_problems_come_by_line_and_once() -> None:
    late, early = Problem(9, "b", "x"), Problem(2, "a", "y")
    error = MeshFileError("m.yaml", [late, early, late])
    assert error.problems == (early, late)
    assert str(error) == "m.yaml: line 2: a: y\nm.yaml: line 9: b: x"


def test_a_problem_of_the_whole_file_has_no_path() -> None:
    assert str(Problem(1, "", "the file is empty")) == "line 1: the file is empty"
