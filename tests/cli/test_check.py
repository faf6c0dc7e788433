"""`apportion check`: what is in the files, and what is wrong with them."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from tests.cli.wards_on_disk import ENVIRONMENT, process, proportions_of, run, voters, write


def test_it_tells_what_is_there_and_leaves_nothing(tmp_path, monkeypatch):
    files = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    result = run("check", *files, "--exclude", "id")
    assert result.exit_code == 0, result.output
    counts = voters()["vote"].value_counts()
    for said in (
        "20 bags, 400 instances",
        f"no {counts['no']}",
        f"yes {counts['yes']}",
        "1 numeric: age (with gaps)",
        "1 categorical: job (3)",
        "all proportions are whole counts",
        "The proportions differ between bags along 1 of 1 direction",
        "Nothing is wrong",
    ):
        assert said in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_it_names_the_bags_that_rounding_moves_most(tmp_path):
    files = write(tmp_path)
    table = proportions_of(voters())
    table.loc[7, ["no", "yes"]] = [0.471, 0.529]  # 9.42 and 10.58 of 20
    table.loc[3, ["no", "yes"]] = [0.51, 0.49]
    table.to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", *files, "--exclude", "id")
    assert "7 0.42 of 20 · 3 0.2 of 20" in result.stdout


def test_it_warns_of_bags_that_teach_nothing(tmp_path):
    files = write(tmp_path)
    pd.DataFrame({"ward": range(20), "no": 0.5, "yes": 0.5}).to_csv(
        tmp_path / "wards.csv", index=False
    )
    result = run("check", *files)
    assert result.exit_code == 0
    assert "Warning: the bags' proportions are nearly identical" in result.stdout


def test_counts_labels_and_splits(tmp_path):
    frame = voters()
    counts = pd.crosstab(frame["ward"], frame["vote"]).reset_index()
    files = write(tmp_path)
    counts.insert(1, "split", ["valid"] * 5 + ["train"] * 15)
    counts.to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", tmp_path / "labelled.csv", *files[1:], "--counts", "--label", "vote")
    assert result.exit_code == 0, result.output
    assert "bags: 15 train, 5 valid" in result.stdout
    assert "known; it differs from the counts of 0 bags" in result.stdout
    result = run("check", tmp_path / "labelled.csv", "--bag", "ward", "--label", "vote")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("change", "problem", "remedy"),
    [
        (lambda t: t.assign(no=t["no"] * 0.5), "sum to", "correct the values"),
        (lambda t: t.iloc[1:], "row 0 (counted from 0) is in bag '0'", "Add the bag to that table"),
        (lambda t: t.assign(yes=-t["yes"]), "yes -0.20", "proportions are 0 to 1"),
        (lambda t: t.assign(yes=["much"] * 20), "'much', which is not a number", "a column of"),
        (lambda t: t.assign(split="tarin"), "split 'tarin'", "Did you mean 'train'?"),
        (lambda t: t.rename(columns={"ward": "Ward"}), "no column 'ward'", "Did you mean 'Ward'?"),
    ],
)
def test_mistakes_in_the_proportions(tmp_path, change, problem, remedy):
    files = write(tmp_path)
    change(proportions_of(voters())).to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", *files)
    assert result.exit_code == 1, result.output
    assert problem in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.output


def test_the_truth_among_the_columns_is_noticed(tmp_path):
    files = write(tmp_path)
    arguments = ["check", tmp_path / "labelled.csv", *files[1:]]
    result = run(*arguments)
    assert result.exit_code == 1
    assert "'vote'" in result.stderr
    assert "--label vote" in result.stderr
    assert run(*arguments, "--label", "vote").exit_code == 0
    assert run(*arguments, "--exclude", "vote").exit_code == 0


def test_the_truth_is_noticed_as_numbers_and_with_gaps(tmp_path):
    files = write(tmp_path)
    frame = voters()
    frame["flag"] = (frame["vote"] == "yes").astype(int)
    frame.drop(columns="vote").to_csv(tmp_path / "rows.csv", index=False)
    for verb in (["check"], ["train", "--epochs", "1", "--out", tmp_path / "a"]):
        result = run(*verb, *files)
        assert result.exit_code == 1, result.output
        assert "column 'flag' meets the class counts of 20 bags" in result.stderr
        for option in ("--label flag", "--exclude flag", "--keep flag"):
            assert option in result.stderr
    assert run("check", *files, "--keep", "flag").exit_code == 0
    assert run("check", *files, "--exclude", "flag").exit_code == 0
    frame["flag"] = frame["vote"].where(np.arange(400) % 80 > 0, "?")
    frame.drop(columns="vote").to_csv(tmp_path / "rows.csv", index=False)
    result = run("check", *files)
    assert result.exit_code == 0, result.output
    assert "column 'flag' nearly gives the truth away" in result.stdout
    assert "Apart from these warnings" in result.stdout
    assert "nearly" not in run("check", *files, "--keep", "flag").output


def test_columns_of_the_proportions_that_are_no_classes(tmp_path):
    files = write(tmp_path)
    table = proportions_of(voters()).assign(population=1000, code="x")
    table.insert(1, "split", ["valid"] * 5 + ["train"] * 15)
    table.to_csv(tmp_path / "wards.csv", index=False)
    assert run("check", *files, "--exclude", "id").exit_code == 1
    result = run("check", *files, "--exclude", "id", "--classes", "no,yes")
    assert result.exit_code == 0, result.output
    for part in (voters().query("ward < 5"), voters().query("ward >= 5")):
        assert f"no {(part['vote'] == 'no').sum()}" in result.stdout
    assert "bags: 15 train, 5 valid" in result.stdout
    result = run("check", *files, "--classes", "no,yess")
    assert "Did you mean 'yes'?" in result.stderr


def test_a_column_of_totals_is_left_out_or_doubted(tmp_path):
    frame = voters()
    counts = pd.crosstab(frame["ward"], frame["vote"]).reset_index()
    files = write(tmp_path)
    counts.assign(all=20).to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", *files, "--exclude", "id", "--counts")
    assert result.exit_code == 0, result.output
    assert "Column 'all' is the total of the bags, not of a class, and left out" in result.stdout
    halves = proportions_of(frame)
    halves[["no", "yes"]] /= 2
    halves.assign(all=0.5).to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", *files, "--exclude", "id")
    assert "class 'all' is half of every bag" in result.stdout
    assert "--classes" in result.stdout


def test_a_column_of_lists_is_answered_with_the_option_that_leaves_it_out(tmp_path):
    _, *files = write(tmp_path)
    rows = voters().drop(columns="vote").assign(tags=[[1]] * 400)
    rows.to_parquet(tmp_path / "rows.parquet")
    result = run("check", tmp_path / "rows.parquet", *files)
    assert result.exit_code == 1
    assert "column 'tags' is of type object" in result.stderr
    assert "leave it out (--exclude)" in result.stderr
    assert run("check", tmp_path / "rows.parquet", *files, "--exclude", "tags").exit_code == 0


def test_a_bag_without_a_split_is_named(tmp_path):
    files = write(tmp_path)
    split = ["train"] * 12 + [None] + ["test"] * 7
    proportions_of(voters()).assign(split=split).to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", *files)
    assert result.exit_code == 1, result.output
    assert "bag 12 has no split" in result.stderr


def test_each_table_has_a_format_of_its_own(tmp_path):
    files = write(tmp_path)
    plain = run("check", *files, "--exclude", "id").stdout
    table = proportions_of(voters())
    table.to_csv(tmp_path / "wards.csv", index=False, sep=";", decimal=",")
    result = run("check", *files, "--exclude", "id")
    assert result.exit_code == 0, result.output
    said = "wards.csv: cells separated by semicolons, numbers with decimal commas."
    assert said in result.stdout
    assert result.stdout.partition("20 bags")[2] == plain.partition("20 bags")[2]


def test_a_column_of_text_in_the_proportions_is_answered_with_classes(tmp_path):
    files = write(tmp_path)
    proportions_of(voters()).assign(region="north").to_csv(tmp_path / "wards.csv", index=False)
    assert "Pass --classes yes,no to name" in run("check", *files).stderr
    assert run("check", *files, "--classes", "no,yes").exit_code == 0


def test_a_column_of_ids_is_doubted(tmp_path):
    files = write(tmp_path)
    result = run("check", *files)
    assert "'id' has 400 categories" in result.stdout
    assert "--exclude leaves columns out" in result.stdout
    assert "Warning" not in run("check", *files, "--exclude", "id").stdout


def test_each_warning_is_shown_once(tmp_path):
    files = write(tmp_path)
    frame = voters()
    frame["flag"] = frame.pop("vote").where(np.arange(400) % 80 > 0, "?")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    # In a process of its own: logging shows warnings by itself where nobody handles them.
    ended = process("check", *files, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output = ended.communicate()[0]
    assert ended.returncode == 0, output
    assert output.count("nearly gives the truth away") == 1
    assert output.count("'id' has") == 1


def test_the_end_of_a_pipe_is_no_mistake(tmp_path):
    files = " ".join(map(str, write(tmp_path)))
    command = f"{sys.executable} -m apportion check {files} --exclude id | head -1"
    answer = subprocess.run(
        ["bash", "-c", command], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert "mistake" not in answer.stderr
    assert "400 rows of a table" in answer.stdout


def test_columns_that_are_constant_within_bags(tmp_path):
    frame = voters().drop(columns="id")
    yes = frame["vote"].eq("yes").groupby(frame["ward"]).transform("mean")
    files = write(tmp_path, frame.assign(share=100 * yes, region=frame["ward"] % 4, tax="t"))
    result = run("check", *files)
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "Warning: Column 'region' is constant within every bag of two or more rows" in told
    assert "Leave such columns out (--exclude region)." in told
    assert "Column 'share' is the bag's own proportions, and left out." in told
    assert "Pass --keep share to learn from it." in told
    assert "2 numeric: age (with gaps), region" in told
    assert "Apart from these warnings" in told
    for options in (["--keep", "share,region"], ["--exclude", "share,region"]):
        assert "Warning" not in run("check", *files, *options).stdout


def test_bags_that_are_alike_are_not_called_right(tmp_path):
    files = write(tmp_path, voters().drop(columns="id"))
    assert "\nNothing is wrong" in run("check", *files).stdout
    table = proportions_of(voters())
    table[["no", "yes"]] = 0.5
    table.to_csv(tmp_path / "wards.csv", index=False)
    result = run("check", *files)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("nearly identical") == 1
    assert "\nApart from these warnings, nothing is wrong" in result.stdout


def test_several_columns_are_one_option_to_paste(tmp_path):
    frame = voters()
    ward = frame["ward"] % 4
    odd = frame.assign(**{"asked on": ward, "tax, yearly": ward * 2, "full name": frame["id"]})
    files = write(tmp_path, odd)
    told = " ".join(run("check", *files).stdout.split())
    constant = "--exclude 'asked on,\"tax, yearly\"'"
    many = "--exclude 'id,full name'"
    assert f"Leave such columns out ({constant})" in told
    assert f"leave the columns out ({many})" in told
    both = 'asked on,"tax, yearly",id,full name'
    assert "Warning" not in run("check", *files, "--exclude", both).stdout
    odd.assign(vote2=odd["vote"], **{"vote 3": odd["vote"]}).to_csv(tmp_path / "rows.csv")
    refused = run("check", *files, "--exclude", "vote")
    assert "so do 'vote 3'" in refused.stderr
    assert "--exclude 'vote2,vote 3'" in refused.stderr
