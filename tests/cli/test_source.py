"""Images and signals from files to predictions, by commands alone."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from apportion.cli.source import Source
from apportion.errors import ConfigError
from apportion.runs.evaluation import read_evaluations
from apportion.runs.run import Run
from tests.cli.wards_on_disk import proportions_of, run, voters, write
from tests.report.reading_pages import read_page, section

QUICK = ["--epochs", "1", "--threads", "1", "--device", "cpu"]


@pytest.fixture
def truth():
    """24 instances in 6 bags of four, class by class."""
    return pd.DataFrame({"bag": np.repeat(list("abcdef"), 4), "bright": [0, 1, 0, 1] * 6})


def write_proportions(folder, truth):
    shares = pd.crosstab(truth["bag"], truth["bright"], normalize="index")
    shares.set_axis(["dark", "bright"], axis=1).to_csv(folder / "bags.csv")
    return ["--proportions", folder / "bags.csv"]


def test_images(tmp_path, truth):
    rng = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for i, bright in enumerate(truth["bright"]):
        pixels = rng.integers(0, 100, (9, 12, 3)) + 150 * bright
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "pictures" / f"{i}.png")
    names = [f"{i}.png" for i in range(24)]
    truth.drop(columns="bright").assign(picture=names).to_csv(tmp_path / "files.csv", index=False)
    given = [tmp_path / "files.csv", "--images", tmp_path / "pictures", "--file", "picture"]
    given += [*write_proportions(tmp_path, truth), "--size", "8x8"]
    result = run("check", *given)
    assert result.exit_code == 0, result.output
    assert "24 images of 8 × 8, 3 channels" in result.stdout
    result = run("train", *given, *QUICK, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    _, evaluations = read_evaluations(Run(tmp_path / "a"))
    assert sorted(evaluations["train"].unsure.rows) == list(range(24))
    page = tmp_path / "page.html"
    result = run("report", tmp_path / "a", "--with-instances", "--out", page)
    assert result.exit_code == 0, result.output
    shown = section(read_page(page), "unsure")
    assert len(list(shown.all("img"))) == 24
    for item, row in zip(shown.all("img"), evaluations["train"].unsure.rows, strict=True):
        assert item.attributes["alt"].startswith(f"{row}.png:")
    only = [names[5], names[0], names[5]]  # one of them in two bags
    notes = ["x", "y", "z"]
    pd.DataFrame({"picture": only, "note": notes}).to_csv(tmp_path / "new.csv", index=False)
    predict = ["predict", tmp_path / "a", tmp_path / "new.csv", "--copy", "note", "--out"]
    result = run(*predict, tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == ["picture", "note", "label", "probability_dark", "probability_bright"]
    assert found["picture"].tolist() == only
    assert found["note"].tolist() == notes
    run("predict", tmp_path / "a", tmp_path / "files.csv", "--out", tmp_path / "all.csv")
    everything = pd.read_csv(tmp_path / "all.csv").set_index("picture")
    np.testing.assert_allclose(
        found["probability_dark"], everything.loc[only, "probability_dark"], atol=1e-6
    )


@pytest.mark.parametrize("how", [QUICK, ("--method", "mean-map")], ids=["a net", "summaries"])
def test_signals(tmp_path, truth, how):
    rng = np.random.default_rng(0)
    frames = pd.concat(
        pd.DataFrame(
            {
                "word": f"word {i}",
                "bag": row.bag,
                "time": np.arange(5 + i % 3),
                "left": row.bright + rng.normal(size=5 + i % 3),
                "right": rng.normal(size=5 + i % 3),
            }
        )
        for i, row in enumerate(truth.itertuples())
    )
    noted = frames.assign(note="loud").sample(frac=1, random_state=0)
    noted.to_csv(tmp_path / "frames.csv", index=False)
    given = [tmp_path / "frames.csv", "--signal", "word", "--order", "time"]
    given += write_proportions(tmp_path, truth)
    result = run("check", *given)
    assert "'note'" in result.stderr
    assert "or learn without the column: --exclude note." in result.stderr
    given += ["--exclude", "note"]
    result = run("check", *given)
    assert result.exit_code == 0, result.output
    assert "learned from   left, right" in result.stdout
    assert "24 signals of 5 to 7 frames, 2 channels" in result.stdout
    result = run("train", *given, *how, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    result = run("report", tmp_path / "a", "--out", tmp_path / "a.html")
    assert result.exit_code == 0, result.output
    result = run("predict", tmp_path / "a", tmp_path / "frames.csv", "--out", tmp_path / "all.csv")
    assert result.exit_code == 0, result.output
    everything = pd.read_csv(tmp_path / "all.csv").set_index("word")
    assert len(everything) == 24
    # The same signals without bags, sorted, with other columns, in another order.
    some = frames[frames["word"].isin(["word 2", "word 9"])].assign(mood="good")
    some[["mood", "right", "left", "time", "word"]].to_parquet(tmp_path / "some.parquet")
    result = run("predict", tmp_path / "a", tmp_path / "some.parquet", "--out", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "p.csv").set_index("word")
    assert found.index.tolist() == ["word 2", "word 9"]
    pd.testing.assert_frame_equal(found, everything.loc[found.index], atol=1e-5)
    some.rename(columns={"left": "Left"}).to_parquet(tmp_path / "some.parquet")
    result = run("predict", tmp_path / "a", tmp_path / "some.parquet", "--out", tmp_path / "q.csv")
    assert result.exit_code == 1
    assert "no column 'left'" in result.stderr


def test_signals_to_predict_are_those_of_one_bag_and_have_all_that_was_learned(tmp_path, truth):
    rng = np.random.default_rng(0)
    frames = truth.loc[truth.index.repeat(4)].assign(
        pitch=rng.normal(size=96), time=[*range(4)] * 24
    )
    frames = frames.rename_axis("word").reset_index().drop(columns="bright")
    frames.to_csv(tmp_path / "frames.csv", index=False)
    given = [tmp_path / "frames.csv", "--signal", "word", "--order", "time"]
    given += write_proportions(tmp_path, truth)
    how = ["--method", "mean-map", "--out", tmp_path / "a"]
    assert run("train", *given, *how).exit_code == 0

    def predict(changed):
        changed.to_csv(tmp_path / "new.csv", index=False)
        out = ["--out", tmp_path / "p.csv", "--force"]
        return run("predict", tmp_path / "a", tmp_path / "new.csv", *out)

    assert predict(frames).exit_code == 0
    wanted = pd.read_csv(tmp_path / "p.csv")
    lost = frames.assign(bag=frames["bag"].where(frames.index % 3 > 0))  # some of a signal's
    assert predict(lost).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), wanted)
    assert predict(frames.assign(bag=np.nan)).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), wanted)
    result = predict(frames.assign(word=frames["word"] % 4))  # counted anew in every bag
    assert result.exit_code == 1
    assert "signal '0' has the bag 'a', but in row 16 (counted from 0) 'b'" in result.stderr
    result = predict(frames.drop(columns="time"))
    assert "no column 'time'.\n  Known: word, bag, pitch." in result.stderr
    result = predict(frames.assign(pitch=frames["pitch"].where(frames["word"] != 5)))
    assert "signal '5' has nan in row 20" in result.stderr
    assert "Fill them in, or leave these rows out.\n" in result.stderr


def test_signals_with_their_truth(tmp_path, truth):
    rng = np.random.default_rng(0)
    frames = truth.loc[truth.index.repeat(4)].assign(pitch=rng.normal(size=96))
    frames = frames.rename_axis("word").reset_index()
    frames.to_csv(tmp_path / "frames.csv", index=False)
    given = ["--signal", "word", "--label", "bright"]
    result = run("train", tmp_path / "frames.csv", *given, *QUICK, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    predict = ["predict", tmp_path / "a", tmp_path / "frames.csv", "--out", tmp_path / "p.csv"]
    result = run(*predict, "--label", "bright")
    assert result.exit_code == 0, result.output
    right = np.mean(pd.read_csv(tmp_path / "p.csv")["label"] == truth["bright"])
    assert f"Accuracy: {right:.2%}" in result.stdout


def test_held_out_bags_do_not_depend_on_the_order_of_the_table(tmp_path):
    rows, _, _, _, table = map(str, write(tmp_path))
    found = []
    for seed in range(3):
        proportions_of(voters()).sample(frac=1, random_state=seed).to_csv(table, index=False)
        source = Source(rows, bag="ward", proportions=table, exclude=("id",))
        found.append({name: set(own.ids) for name, own in source.read(None, 0.3, 7).sets.items()})
    assert found[0] == found[1] == found[2]
    assert len(found[0]["valid"]) == 6


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("counts", "false"),
        ("counts", 1),
        ("normalize", "no"),
        ("follow_links", "true"),
        ("rows", 3),
        ("rows", ["a.csv"]),
        ("bag", True),
        ("proportions", ["wards.csv"]),
        ("label", 7),
        ("classes", "yes"),
        ("exclude", "id"),
        ("exclude", [1]),
        ("keep", "id"),
        ("names", {"a": "b"}),
        ("size", "64x64"),
        ("size", [64]),
        ("size", [64, "64"]),
        ("size", [64, 0]),
        ("size", [True, True]),
        ("images", False),
    ],
)
def test_types_in_a_configuration_are_checked(option, value):
    given = {"rows": "rows.csv", option: value}
    with pytest.raises(ConfigError, match=rf"^{option} in \[data\] must be .*; got "):
        Source.from_dict(given, Path("/somewhere"))


def test_what_a_source_writes_it_reads_again():
    source = Source(
        "r.csv", images="i", size=(4, 5), classes=("a",), counts=True, follow_links=True
    )
    assert Source.from_dict(source.to_dict()) == source
    assert Source.from_dict({"rows": "r.csv", "counts": False, "exclude": []}) == Source("r.csv")


def test_links_out_of_the_folder_need_an_option(tmp_path, truth):
    (tmp_path / "images").mkdir()
    names = [f"{i}.png" for i in range(24)]
    for name, bright in zip(names, truth["bright"], strict=True):
        Image.new("L", (8, 8), 200 * bright).save(tmp_path / "images" / name)
    (tmp_path / "images/3.png").replace(tmp_path / "3.png")
    (tmp_path / "images/3.png").symlink_to(tmp_path / "3.png")
    truth.assign(file=names)[["file", "bag"]].to_csv(tmp_path / "files.csv", index=False)
    files = [tmp_path / "files.csv", "--images", tmp_path / "images"]
    files += write_proportions(tmp_path, truth)
    result = run("check", *files)
    assert result.exit_code == 1
    assert "'3.png' (row 3" in result.stderr
    assert "--follow-links" in result.stderr
    result = run("check", *files, "--follow-links")
    assert result.exit_code == 0, result.output
