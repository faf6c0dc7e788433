"""A paper's folder: its cells in their order, and lines that are whole or not there."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from apportion.errors import DataError
from apportion.study.reproduce.paper import Cell, Paper, select
from tests.study.reproduce.small import TABLE, line_of, small_paper


def short(cells):
    return [(cell.method, cell.bag_size, cell.seed) for cell in cells]


def test_cells_come_in_the_order_that_the_folder_gives_each_once(tmp_path):
    assert short(small_paper(tmp_path / "p").cells()) == [
        ("proportion-loss", 8, 0),
        ("fpl", 4, 0),
        ("fpl", 8, 0),
        ("proportion-loss", 4, 0),
        ("fpl", 4, 1),
        ("fpl", 8, 1),
    ]


def test_methods_come_as_their_entry_names_them(tmp_path):
    paper = small_paper(tmp_path / "p")
    (paper.folder / "order.toml").write_text(
        '[[cells]]\nmethods = ["proportion-loss", "fpl"]\nsizes = [4]\n'
    )
    assert short(paper.cells()) == [("proportion-loss", 4, 0), ("fpl", 4, 0)]


def test_other_seeds_come_in_the_same_order(tmp_path):
    cells = small_paper(tmp_path / "p").cells([7, 5])
    assert short(cells)[:2] == [("proportion-loss", 8, 7), ("proportion-loss", 8, 5)]
    assert len(cells) == 8


def test_without_an_order_cells_come_table_by_table(tmp_path):
    paper = small_paper(tmp_path / "p")
    (paper.folder / "order.toml").unlink()
    assert short(paper.cells()) == [
        ("fpl", 4, 0),
        ("fpl", 8, 0),
        ("proportion-loss", 4, 0),
        ("proportion-loss", 8, 0),
    ]


def test_what_was_added_is_read_again(tmp_path):
    paper = small_paper(tmp_path / "p")
    assert paper.results() == paper.curves() == {}
    lines = [line_of("fpl", 4), line_of("fpl", 8), line_of("fpl", 4, seed=1)]
    for number, line in enumerate(lines):
        paper.add(line, {"loss": [number, 0.5]})
    again = Paper(paper.folder)
    assert list(again.results().values()) == lines
    assert again.curves()[Cell("cifar10", "fpl", 4, 1, 2)] == {"loss": [2, 0.5]}


def test_a_line_that_was_cut_short_is_not_read_and_gone_with_the_next(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 4), {"loss": [1.0]})
    for name in ("cifar10.jsonl", "curves.jsonl"):
        with (paper.results_folder / name).open("a") as file:
            file.write('{"dataset": "cifar10", "meth')
    assert len(paper.results()) == len(paper.curves()) == 1
    paper.add(line_of("fpl", 8), {"loss": [2.0]})
    assert len(paper.results()) == len(paper.curves()) == 2
    text = (paper.results_folder / "cifar10.jsonl").read_text()
    assert [json.loads(line)["bag_size"] for line in text.splitlines()] == [4, 8]


def test_a_line_whose_end_an_editor_took_is_kept(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 4), {"loss": [1.0]})
    for name in ("cifar10.jsonl", "curves.jsonl"):
        file = paper.results_folder / name
        file.write_text(file.read_text().rstrip("\n"))
    assert len(paper.results()) == len(paper.curves()) == 1
    paper.add(line_of("fpl", 8), {"loss": [2.0]})
    assert len(paper.results()) == len(paper.curves()) == 2


def test_a_cell_has_one_line(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 4, selected=1.0), {"loss": [1.0]})
    paper.add(line_of("fpl", 4, selected=2.0), {"loss": [2.0]})
    (line,) = paper.results().values()
    assert line["selected"] == 1.0
    assert len((paper.results_folder / "cifar10.jsonl").read_text().splitlines()) == 1


def test_methods_of_several_tables_come_as_their_entry_names_them(tmp_path):
    paper = small_paper(tmp_path / "p")
    other = TABLE.replace("fpl =", "greedy =").replace("proportion-loss =", "naive =")
    (paper.folder / "a-table.toml").write_text(other)
    (paper.folder / "order.toml").write_text(
        '[[cells]]\nmethods = ["fpl", "naive", "proportion-loss"]\nsizes = [4]\n'
    )
    methods = [cell.method for cell in Paper(paper.folder).cells()]
    assert methods == ["fpl", "naive", "proportion-loss"]


def test_lines_of_several_threads_do_not_mix(tmp_path):
    paper = small_paper(tmp_path / "p")
    threads = [
        threading.Thread(target=paper.add, args=(line_of("fpl", 4, seed), {"loss": [seed] * 200}))
        for seed in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(cell.seed for cell in paper.results()) == list(range(20))
    assert all(numbers["loss"] == [cell.seed] * 200 for cell, numbers in paper.curves().items())


KILLED = """
import sys
from apportion.study.reproduce.paper import Paper
from tests.study.reproduce.small import line_of
paper = Paper(sys.argv[1])
print("ready", flush=True)
for seed in range(10**6):
    paper.add(line_of("fpl", 4, seed), {"loss": [seed] * 2000})
    print(seed, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="there is no kill -9")
def test_a_process_that_is_killed_leaves_whole_cells(tmp_path):
    paper = small_paper(tmp_path / "p")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(paper.folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = -1
    for text in process.stdout:
        if text.strip().isdecimal() and (told := int(text)) >= 5:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    seeds = [cell.seed for cell in paper.results()]
    assert seeds == list(range(len(seeds)))
    assert len(seeds) >= told + 1
    assert set(paper.results()) <= set(paper.curves())
    paper.add(line_of("fpl", 8), {"loss": []})
    assert len(paper.results()) == len(seeds) + 1


@pytest.mark.parametrize(
    ("only", "count"),
    [("", 6), ("method=fpl", 4), ("method=fpl,bag_size=8", 2), ("bag_size=4/8, seed=1", 2)],
)
def test_cells_are_selected_by_their_fields(tmp_path, only, count):
    assert len(select(small_paper(tmp_path / "p").cells(), only)) == count


@pytest.mark.parametrize(
    ("only", "problem"),
    [
        ("methd=fpl", "no 'methd'.*method"),
        ("method=fpll", "no cell has method=fpll.*proportion-loss, fpl"),
        ("bag_size", "no cell has bag_size.*8, 4"),
    ],
)
def test_a_selection_of_nothing_is_an_error_that_says_what_there_is(tmp_path, only, problem):
    with pytest.raises(DataError, match=f"(?s){problem}"):
        select(small_paper(tmp_path / "p").cells(), only)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("kind = ", "is not valid TOML"),
        (TABLE.replace("sizes", "size"), "lacks 'sizes'"),
        (TABLE.replace("[50.0, 40.0]", "[50.0]"), "has 1 numbers of fpl for 2 sizes"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused_by_its_file(tmp_path, content, problem):
    folder = small_paper(tmp_path / "p").folder
    (folder / "table.toml").write_text(content)
    with pytest.raises(DataError, match=rf"table\.toml {problem}"):
        Paper(folder)


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(DataError, match="it has no table"):
        Paper(tmp_path)


def test_lines_that_are_damaged_are_refused_by_their_file(tmp_path):
    paper = small_paper(tmp_path / "p")
    paper.add(line_of("fpl", 4), {})
    (paper.results_folder / "cifar10.jsonl").write_text("{\n{}\n")
    with pytest.raises(DataError, match=r"cifar10\.jsonl is damaged"):
        paper.results()
