"""A table of 300 people on disk, and bags made of it by the command."""

from pathlib import Path

import numpy as np
import pandas as pd

from tests.cli.wards_on_disk import run


def people_in(folder):
    """Write a table of 300 rows as CSV and as Parquet."""
    rng = np.random.default_rng(0)
    income = np.where(rng.random(300) < 0.4, ">50K", "<=50K")
    frame = pd.DataFrame(
        {
            "row": np.arange(300),
            "postcode": [f"{k:04d}" for k in rng.integers(9999, size=300)],
            "income": income,
            "age": np.where(income == ">50K", 55, 35) + rng.normal(size=300).round(3),
        }
    )
    frame.to_csv(folder / "people.csv", index=False)
    frame.to_parquet(folder / "people.parquet")
    return frame


CLUSTERS = ("--protocol", "clusters")


def bag(*arguments, table="people.csv", label="income", code=0):
    result = run("bag", table, "--label", label, *map(str, arguments))
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.stdout if code == 0 else result.stderr


def assert_refused(people, options, facts):
    """Make bags of a table that may be broken: there is a message of these facts, and no bags."""

    def variant(name, **columns):
        people.assign(**columns).to_csv(name, index=False)

    income = people["income"]
    variant("bag.csv", bag=1)
    variant("gaps.csv", income=income.where(~income.index.isin([7, 9])))
    variant("split.csv", income=income.where(income.index > 100, "split"))
    variant("one.csv", income="same")
    variant("rare.csv", income=income.where(income.index > 0, "rare"))
    variant("holes.csv", age=people["age"].where(people.index != 4))
    people[["income"]].assign(word="a").to_csv("words.csv", index=False)
    people.iloc[:0].to_csv("names.csv", index=False)
    Path("broken.parquet").write_bytes(b"PAR1")
    Path("latin.csv").write_bytes("income\nmünchen\n".encode("latin-1"))
    Path("empty.csv").touch()
    wanted = {"table": "people.csv", "label": "income", "with": (), **options}
    err = bag("--size", 8, *wanted["with"], table=wanted["table"], label=wanted["label"], code=1)
    for fact in facts:
        assert fact in err
    assert err.startswith("apportion: ")
    assert "Traceback" not in err
    assert not Path("bags").exists()
