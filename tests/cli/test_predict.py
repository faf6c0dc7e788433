"""`apportion predict`: what the model says of every row, as a file."""

import numpy as np
import pandas as pd
import pytest
from torch import nn

from apportion import Bags, LLPClassifier, Model, TrainConfig, fit
from apportion.data import pieces as table_pieces
from apportion.nets.build import build_net
from tests.cli.wards_on_disk import QUICK, run, train_in, voters, write


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_in(tmp_path_factory.mktemp("trained"))


def predicted(folder, *arguments, out="p.csv"):
    path = folder / out
    path.unlink(missing_ok=True)
    result = run("predict", folder / "a", *arguments, "--out", path, "--device", "cpu")
    assert result.exit_code == 0, result.output
    return pd.read_csv(path) if out.endswith(".csv") else pd.read_parquet(path), result


def expected(folder, frame):
    classifier = LLPClassifier.load(folder / "a", device="cpu")
    return classifier.predict_proba(frame[["age", "job"]])


@pytest.mark.parametrize("out", ["p.csv", "p.parquet"])
def test_every_row_gets_its_label_and_probabilities(trained, out):
    found, result = predicted(trained, trained / "rows.csv", out=out)
    assert list(found.columns) == ["label", "probability_no", "probability_yes"]
    likely = expected(trained, voters())
    np.testing.assert_allclose(found.iloc[:, 1:], likely, atol=1e-6)
    assert found["label"].tolist() == [("no", "yes")[k] for k in likely.argmax(axis=1)]
    assert "400 predictions" in result.stdout


def test_large_tables_go_piece_by_piece(trained, monkeypatch):
    whole, _ = predicted(trained, trained / "rows.csv", "--copy", "id,ward", out="whole.csv")
    monkeypatch.setattr(table_pieces, "MOST_ROWS", 7)
    monkeypatch.setattr(table_pieces, "CELLS", 35)
    for out in ("p.csv", "p.parquet"):
        pieces, _ = predicted(trained, trained / "rows.csv", "--copy", "id,ward", out=out)
        assert pieces["id"].tolist() == [f"voter {i}" for i in range(400)]
        np.testing.assert_allclose(pieces.iloc[:, 3:], whole.iloc[:, 3:], atol=1e-6)


def test_a_column_that_is_learned_from_can_be_kept(trained):
    found, _ = predicted(trained, trained / "rows.csv", "--copy", "age,job")
    pd.testing.assert_frame_equal(
        found[["age", "job"]], voters()[["age", "job"]], check_dtype=False
    )


def test_other_columns_their_order_and_bags_do_not_matter(trained, tmp_path):
    frame = voters(40, seed=3)
    frame[["job", "vote", "age"]].to_parquet(tmp_path / "new.parquet")
    found, _ = predicted(trained, tmp_path / "new.parquet")
    np.testing.assert_allclose(found.iloc[:, 1:], expected(trained, frame), atol=1e-6)


def test_accuracy_where_the_truth_is_known(trained):
    found, result = predicted(trained, trained / "labelled.csv", "--label", "vote")
    right = np.mean(found["label"] == voters()["vote"])
    assert f"Accuracy: {right:.2%}" in result.stdout


def test_labels_that_meet_known_counts(trained):
    plain, _ = predicted(trained, trained / "rows.csv", out="plain.csv")
    given = ["--proportions", trained / "wards.csv"]
    found, _ = predicted(trained, trained / "rows.csv", *given)
    frame = voters()
    counts = pd.crosstab(frame["ward"], frame["vote"])
    met = pd.crosstab(frame["ward"], found["label"])
    np.testing.assert_array_equal(met, counts)
    assert not (found["label"] == plain["label"]).all()
    # Probabilities are those of the estimator, given the counts, and sum to these.
    classifier = LLPClassifier.load(trained / "a", device="cpu")
    known = {"bags": frame["ward"], "proportions": counts}
    likely = classifier.predict_proba(frame[["age", "job"]], **known)
    np.testing.assert_allclose(found.iloc[:, 1:], likely, atol=1e-6)
    sums = found["probability_yes"].groupby(frame["ward"]).sum()
    np.testing.assert_allclose(sums, counts["yes"], atol=1e-4)


@pytest.mark.parametrize("options", [[], ["--normalize"]])
def test_a_class_that_the_model_does_not_have_is_never_rescaled_away(trained, tmp_path, options):
    table = pd.read_csv(trained / "wards.csv")
    other = table.assign(no=table["no"] * 0.8, yes=table["yes"] * 0.8, other=0.2)
    other.to_csv(tmp_path / "other.csv", index=False)
    table.assign(total=1.0).to_csv(tmp_path / "total.csv", index=False)
    arguments = ["predict", trained / "a", trained / "rows.csv", "--out", tmp_path / "p.csv"]
    result = run(*arguments, *options, "--proportions", tmp_path / "other.csv")
    assert result.exit_code == 1
    assert "has the classes no, yes, other, but the model no, yes" in result.stderr
    assert not (tmp_path / "p.csv").exists()
    result = run(*arguments, *options, "--proportions", tmp_path / "total.csv")
    assert result.exit_code == 0, result.output


def test_a_class_is_named_once_in_a_prevalence(trained, tmp_path):
    arguments = ["predict", trained / "a", trained / "rows.csv", "--out", tmp_path / "p.csv"]
    result = run(*arguments, "--prevalence", "yes=0.2,yes=0.3")
    assert result.exit_code == 1
    assert "has a class more than once" in result.stderr


def test_percent_signs_are_those_of_the_training(tmp_path):
    frame = voters().dropna()
    signed = frame.assign(age=frame["age"].map("{:g} %".format))
    result = run("train", *write(tmp_path, signed), *QUICK, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    found, _ = predicted(tmp_path, tmp_path / "labelled.csv", "--label", "vote")
    assert len(found) == len(frame)
    frame.to_csv(tmp_path / "bare.csv", index=False)
    told = run("predict", tmp_path / "a", tmp_path / "bare.csv", "--out", tmp_path / "q.csv")
    assert told.exit_code == 1
    assert "column 'age' held numbers with percent signs when it was learned" in told.stderr


def test_probabilities_of_another_population(trained):
    found, _ = predicted(trained, trained / "rows.csv", "--prevalence", "yes=0.1,no=0.9")
    model = Model.load(trained / "a", device="cpu")
    likely = model.predict_proba(voters()[["age", "job"]])
    assert model.prevalence is not None
    odds = likely[:, 1] / likely[:, 0] * (0.1 / 0.9) / (model.prevalence[1] / model.prevalence[0])
    np.testing.assert_allclose(found["probability_yes"], odds / (1 + odds), atol=1e-5)
    assert found["label"].tolist() == ["yes" if o > 1 else "no" for o in odds]


def test_rounded_shares_and_percentages_need_no_option(trained, tmp_path):
    table = pd.read_csv(trained / "wards.csv").round(1)
    table.loc[0, ["no", "yes"]] = 0.7, 0.2
    table.to_csv(tmp_path / "rough.csv", index=False)
    arguments = ["predict", trained / "a", trained / "rows.csv", "--out", tmp_path / "p.csv"]
    assert run(*arguments, "--proportions", tmp_path / "rough.csv", "--force").exit_code == 0
    (tmp_path / "p.csv").unlink()
    table[["no", "yes"]] = 100 * pd.read_csv(trained / "wards.csv")[["no", "yes"]].round(3)
    table.to_csv(tmp_path / "rough.csv", index=False)
    assert run(*arguments, "--proportions", tmp_path / "rough.csv").exit_code == 0
    (tmp_path / "p.csv").unlink()
    table[["no", "yes"]] *= 7
    table.to_csv(tmp_path / "rough.csv", index=False)
    result = run(*arguments, "--proportions", tmp_path / "rough.csv")
    assert result.exit_code == 1
    assert "--normalize" in result.stderr
    assert "--counts" not in result.stderr
    assert run(*arguments, "--proportions", tmp_path / "rough.csv", "--normalize").exit_code == 0


def test_a_file_without_a_line_of_names(trained, tmp_path):
    path = tmp_path / "rows.data"
    voters()[["age", "job"]].to_csv(path, index=False, header=False)
    found, _ = predicted(trained, path, "--names", "age,job")
    np.testing.assert_allclose(found.iloc[:, 1:], expected(trained, voters()), atol=1e-6)


def test_texts_of_digits_stay_texts_without_a_line_of_names(tmp_path):
    frame = voters().assign(job=lambda f: np.where(f["vote"] == "yes", "007", "x"))
    files = write(tmp_path, frame)
    result = run("train", *files, *QUICK, "--keep", "job", "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    some = frame[frame["job"] == "007"][["age", "job"]]
    some.to_csv(tmp_path / "with.csv", index=False)
    some.to_csv(tmp_path / "without.csv", index=False, header=False)
    whole, _ = predicted(tmp_path, tmp_path / "with.csv", out="1.csv")
    found, result = predicted(tmp_path, tmp_path / "without.csv", "--names", "age,job", out="2.csv")
    pd.testing.assert_frame_equal(found, whole)
    assert "not there when" not in result.stderr


def test_kept_cells_are_those_of_the_file(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(table_pieces, "MOST_ROWS", 30)
    large = pd.array([9007199254740993 + i for i in range(50)], dtype="Int64")
    large[40:] = None  # in the second piece
    frame = voters(60)[:50].assign(key=large, name="NA")
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    for form in ("parquet", "csv"):
        given = [tmp_path / f"rows.{form}", "--copy", "key,name,age"]
        path = trained / "kept.parquet"
        predicted(trained, *given, out=path.name)
        found = pd.read_parquet(path, dtype_backend="pyarrow")
        keys = found["key"].astype("string").fillna("").tolist()
        assert keys == [str(n) for n in range(9007199254740993, 9007199254741033)] + [""] * 10
        assert found["name"].tolist() == ["NA"] * 50


def test_what_was_never_seen_is_said_in_a_line(trained, tmp_path):
    voters().assign(job="astronaut").to_csv(tmp_path / "new.csv", index=False)
    _, result = predicted(trained, tmp_path / "new.csv")
    assert "astronaut" in result.stderr
    assert ".py" not in result.stderr


def test_the_file_of_a_model_predicts_as_its_run_does(trained, tmp_path):
    expected, _ = predicted(trained, trained / "rows.csv")
    LLPClassifier.load(trained / "a", device="cpu").save(tmp_path / "model.safetensors")
    files = [tmp_path / "model.safetensors", trained / "rows.csv", "--out", tmp_path / "p.csv"]
    result = run("predict", *files, "--device", "cpu")
    assert result.exit_code == 0, result.output
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), expected)


def test_classes_are_found_however_their_numbers_are_written(tmp_path):
    frame = voters()
    frame["vote"] = (frame["vote"] == "yes").astype(float)
    folder = tmp_path
    frame.to_csv(folder / "rows.csv", index=False)
    options = ["--bag", "ward", "--label", "vote", *QUICK]
    result = run("train", folder / "rows.csv", *options, "--out", folder / "a")
    assert result.exit_code == 0, result.output
    told = []
    for written in (
        frame["vote"],
        frame["vote"].astype(int),
        frame["vote"].map({0: "0", 1: "1.0"}),
    ):
        frame.assign(vote=written).to_csv(folder / "new.csv", index=False)
        told.append(predicted(folder, folder / "new.csv", "--label", "vote")[1].stdout)
    assert "Accuracy" in told[0]
    assert told[1:] == told[:1] * 2


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["nowhere", "rows.csv"], "nowhere does not exist", "the folder of a run"),
        ([".", "rows.csv"], "not a run folder", "apportion train"),
        (["a", "nowhere.csv"], "nowhere.csv does not exist", "rows.csv"),
        (["a", "wards.csv"], "no column 'age' (and 1 more like it)", "Known: ward"),
        (["a", "renamed.csv"], "no column 'age'", "Did you mean 'Age'?"),
        (
            ["a", "text.csv"],
            "'age' held numbers when it was learned, but holds text now",
            "Convert it to numbers",
        ),
        (["a", "rows.csv", "--copy", "nme"], "no column 'nme'", "Known: "),
        (["a", "labelled.csv", "--copy", "label"], "the name of a column of predictions", "Rename"),
        (["a", "rows.csv", "--label", "job"], "none of the classes", "Known: no, yes"),
        (["a", "dots.csv", "--label", "vote"], "has 'no.'", "Did you mean 'no'?"),
        (["a", "nothing.csv"], "nothing.csv has 0 rows", "with rows"),
        (["library", "rows.csv"], "was started in Python", "Model.load"),
        (["own", "rows.csv"], "none of apportion's", "Load it in Python: Model.load"),
        (["a", "rows.csv", "--out", "p.txt"], "neither .csv nor .parquet", "end in one"),
        (["a", "rows.csv", "--out", "no/p.csv"], "a folder that does not exist", "Make"),
        (["a", "rows.csv", "--out", "rows.csv"], "already exists", "--force"),
        (["a", "rows.csv", "--out", "rows.csv", "--force"], "the rows themselves", "another"),
        (["a", "rows.csv", "--prevalence", "yes=few"], "yes=few has a share", "yes=0.2,no=0.8"),
        (["a", "rows.csv", "--prevalence", "yse=0.1"], "has 'yse'", "Did you mean 'yes'?"),
        (["a", "rows.csv", "--prevalence", "yes=0.1,no=0.2"], "sum to 1, not 0.3", "share of"),
        (
            ["a", "rows.csv", "--prevalence", "yes=0.1", "--proportions", "wards.csv"],
            "--prevalence is given as well as --proportions",
            "Leave out",
        ),
        (["a", "rows.csv", "--names", "x,y"], "4 columns, but 2 names", "Name every column"),
        (
            ["a", "rows.csv", "--proportions", "few.csv"],
            "bag '0' (20 rows) is unknown",
            "Add it to",
        ),
    ],
)
def test_mistakes_are_named_and_nothing_is_left(trained, monkeypatch, arguments, problem, remedy):
    monkeypatch.chdir(trained)
    frame = voters()
    frame.rename(columns={"age": "Age"}).to_csv("renamed.csv", index=False)
    frame.assign(age="old").to_csv("text.csv", index=False)
    frame.assign(vote=frame["vote"] + ".").to_csv("dots.csv", index=False)
    frame.iloc[:0].to_csv("nothing.csv", index=False)
    pd.read_csv("wards.csv").iloc[1:].to_csv("few.csv", index=False)
    bags = Bags.from_rows(np.eye(4, dtype=np.float32), [0, 0, 1, 1], truth=list("abab"))
    for name, net in (("library", build_net("mlp", bags)), ("own", nn.Linear(4, 2))):
        if name in arguments and not (trained / name).exists():
            config = TrainConfig(epochs=1, device="cpu", threads=1)
            fit(net, bags, config=config, run=trained / name)
    out = [] if "--out" in arguments else ["--out", "none.csv"]
    before = (trained / "rows.csv").read_bytes()
    result = run("predict", *arguments, *out, "--device", "cpu")
    assert result.exit_code == 1, result.output
    assert problem in result.stderr
    assert remedy in result.stderr
    assert "Traceback" not in result.output
    assert not list(trained.glob("none.csv*"))
    assert (trained / "rows.csv").read_bytes() == before


def test_an_existing_file_is_replaced_by_force_alone(trained):
    path = trained / "mine.csv"
    path.write_text("precious")
    arguments = ["predict", trained / "a", trained / "rows.csv", "--out", path]
    assert run(*arguments).exit_code == 1
    assert path.read_text() == "precious"
    assert run(*arguments, "--force").exit_code == 0
    assert len(pd.read_csv(path)) == 400
