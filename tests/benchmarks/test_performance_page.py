from benchmarks._performance_page import NOTHING, PEER, render, render_short


def line(tree, what, value, figure="import", unit="s", **more):
    return {
        "figure": figure,
        "what": what,
        "tree": tree,
        "value": value,
        "unit": unit,
        "spread": [value / 2, 2 * value],
        "n": 3,
        "date": "2001-02-03",
        "hardware": "3 cores",
        "versions": {"python": "3.11"},
        "commit": {"before": "aaa", "now": "bbb"}[tree],
        **more,
    }


def rows(text):
    """The cells of every row of the tables, by the first of them."""
    cells = [row.strip("| ").split(" | ") for row in text.split("\n") if row.startswith("| ")]
    return {first: rest for first, *rest in cells}


def test_without_lines_the_pages_say_so():
    assert render([]) == NOTHING
    assert render_short([]) == NOTHING


def test_a_row_has_both_trees_their_ranges_and_how_much_faster_it_became():
    lines = [line("before", "import", 6.0), line("now", "import", 1.5)]
    assert rows(render(lines))["import"] == [
        "6.00 s (3.00–12.0)",
        "1.50 s (0.750–3.00)",
        "4×",
        "3",
    ]


def test_ratios_are_not_compared_and_a_missing_tree_is_an_empty_cell():
    lines = [line(tree, "ratio", 1.2, unit="×") for tree in ("before", "now")]
    lines += [line("now", "new", 12_345.6, n=1)]
    found = rows(render(lines))
    assert found["ratio"][2] == ""
    assert found["new"] == ["", "12,346 s", "", "1"]


def test_figures_stand_in_their_tables_and_peers_in_one_of_their_own():
    lines = [line("now", "a", 1.0), line("now", "b", 0.5, "one-row", "ms")]
    lines += [line("now", PEER, 0.25, "peers", "ms", peer="POT emd", peer_ms=2.5, ratio=10.0)]
    first, second, third = render(lines).split("\n\n**")
    assert "| a |" in first
    assert "| b |" in second
    assert rows(third)[PEER] == ["0.250", "POT emd 2.50", "**10×**"]


def test_a_failure_is_told_below_the_table_of_the_others():
    failed = line("before", "command-line", 0.0, "command-line")
    del failed["value"]
    text = render([line("now", "import", 1.0), {**failed, "error": "exit code 2"}])
    assert "| import |" in text
    assert "*Not measured: command-line (before): exit code 2.*" in text
    assert "| command-line |" not in text


def test_the_page_names_machine_date_versions_and_both_commits_once():
    text = render([line(tree, what, 1.0) for tree in ("before", "now") for what in "ab"])
    told = text.split("\n\n")[-1]
    assert told == (
        "Measured on 2001-02-03, 3 cores, python 3.11. *before* is commit aaa, *now* is commit bbb."
    )


def test_the_short_lines_are_of_now():
    name = "`from apportion import LLPClassifier`"
    lines = [line("before", name, 6.0), line("now", name, 1.5), line("now", "other", 9.0)]
    lines += [line("now", PEER, 0.25, "peers", "ms", peer="POT emd", peer_ms=2.5, ratio=10.0)]
    assert render_short(lines).split("\n") == [
        f"- {name}: 1.50 s",
        f"- `assign`, {PEER}: 0.250 ms, 10 times as fast as POT emd",
    ]
