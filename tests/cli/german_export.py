"""A German Excel export: voters and their wards, as .csv in cp1252 and as the .xlsx itself."""

import numpy as np
import pandas as pd

N_WARDS, SIZE, SHARES = 24, 25, ("Ja", "Nein", "Enthaltung")


def voters(seed=0):
    rng = np.random.default_rng(seed)
    ward = np.repeat(np.arange(N_WARDS), SIZE)
    p = np.stack([np.linspace(0.1, 0.8, N_WARDS), np.linspace(0.7, 0.1, N_WARDS)], axis=1)
    p = np.column_stack([p, 1 - p.sum(axis=1)])
    vote = np.array([rng.choice(3, p=p[k]) for k in ward])
    n = len(ward)
    frame = pd.DataFrame(
        {
            "Wahlbezirk": [f"Bezirk {k + 1} – Süd" for k in ward],
            "Alter": (30 + 15 * vote + rng.normal(scale=3, size=n)).round(1),
            "Einkommen": (2000 + 900.5 * (vote == 1) + rng.normal(scale=200, size=n)).round(2),
            "Größe in %": (0.4 + 0.2 * (vote == 2) + rng.normal(scale=0.05, size=n)).round(3),
            "Befragt am": pd.Timestamp("2024-01-20")
            + pd.to_timedelta(rng.integers(0, 300, n), "D"),
            "Land": "DE",
            "Bemerkung": None,
            "Stimme": np.array(SHARES)[vote],
        }
    )
    return frame.sample(frac=1, random_state=seed).reset_index(drop=True)


def proportions(frame, extra=True):
    """The wards' shares, their total, and three wards that have no rows."""
    shares = pd.crosstab(frame["Wahlbezirk"], frame["Stimme"], normalize="index")[list(SHARES)]
    if extra:
        for name in ("Briefwahl", "Bezirk 99 – Süd", "Summe"):
            shares.loc[name] = [0.5, 0.25, 0.25]
    return shares.reset_index()


def with_rows_without_a_bag(frame):
    frame = frame.copy()
    frame.loc[[3, 50, 120, 300, 511], "Wahlbezirk"] = None
    return frame


def _german(value, digits):
    whole, _, rest = f"{value:,.{digits}f}".partition(".")
    return f"{whole.replace(',', '.')},{rest}"


def write_csv(folder, frame):
    """What Excel writes in Germany: semicolons, decimal commas, cp1252, percentages."""
    rows, table = with_rows_without_a_bag(frame), proportions(frame)
    rows["Alter"] = [_german(v, 1) for v in rows["Alter"]]
    rows["Einkommen"] = [_german(v, 2) for v in rows["Einkommen"]]
    rows["Größe in %"] = [f"{_german(100 * v, 1)} %" for v in rows["Größe in %"]]
    rows["Befragt am"] = rows["Befragt am"].dt.strftime("%d.%m.%Y")
    for name in SHARES:
        table[name] = [f"{_german(100 * v, 1)}%" for v in table[name]]
    table["Gesamt"] = "100,0%"
    rows.drop(columns="Stimme").to_csv(
        folder / "Wähler.csv", sep=";", index=False, encoding="cp1252"
    )
    table.to_csv(folder / "Bezirke.csv", sep=";", index=False, encoding="cp1252")
    return folder / "Wähler.csv", folder / "Bezirke.csv"


def write_excel(folder, frame):
    """The workbooks: numbers as numbers, shares shown as percentages, dates as dates."""
    rows, table = with_rows_without_a_bag(frame), proportions(frame)
    table["Gesamt"] = 1.0
    with pd.ExcelWriter(folder / "Wähler.xlsx", engine="openpyxl") as book:
        rows.drop(columns="Stimme").to_excel(book, sheet_name="Daten", index=False)
        pd.DataFrame({"Stand": ["2024"]}).to_excel(book, sheet_name="Info", index=False)
    with pd.ExcelWriter(folder / "Bezirke.xlsx", engine="openpyxl") as book:
        table.to_excel(book, sheet_name="Bezirke", index=False)
        for row in book.sheets["Bezirke"].iter_rows(min_row=2, min_col=2):
            for cell in row:
                cell.number_format = "0.0%"
    return folder / "Wähler.xlsx", folder / "Bezirke.xlsx"
