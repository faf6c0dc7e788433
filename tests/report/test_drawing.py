"""Drawings that belong to the page: its colours in both themes, and names of their own."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest

import apportion.report
from apportion.report.drawing import INK, MUTED, SERIES, as_svg, canvas, key, look

STYLE = (Path(apportion.report.__file__).parent / "style.css").read_text()


def drawn(name, description="1 line"):
    with canvas() as (figure, axes):
        axes.plot([0, 1], [0, 1], "o-", color=SERIES[2])
        axes.set_title("#010203 1.23456 <g>", color=INK)
        axes.set_xlabel("epoch", color=MUTED)
        return str(as_svg(figure, name, description))


def test_colours_are_those_of_the_page_and_texts_are_left_alone():
    svg = drawn("a")
    assert not re.search("(fill|stroke): #0102", svg)
    assert {"var(--ink)", "var(--muted)", "var(--grid)", "var(--s3)"} <= set(
        re.findall(r"var\([^)]*\)", svg)
    )
    assert "#010203 1.23456 &lt;g&gt;</text>" in svg


def test_two_drawings_share_no_name_and_each_meets_its_own():
    one, two = drawn("a"), drawn("b")
    names = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (one, two)]
    assert names[0]
    assert not names[0] & names[1]
    for svg, own in zip((one, two), names, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= own
    assert drawn("a") == one


def test_a_description_is_a_text():
    svg = drawn("a", 'a "quoted" <b>')
    assert 'aria-label="a &quot;quoted&quot; &lt;b&gt;"' in svg
    assert 'viewBox="0 0 340 220"' in svg


def test_the_style_of_the_user_changes_nothing_and_is_left_alone():
    before = drawn("a")
    with mpl.rc_context({"lines.linewidth": 9, "axes.grid": False, "axes.xmargin": 0.5}):
        assert drawn("a") == before
        assert mpl.rcParams["lines.linewidth"] == 9


@pytest.mark.parametrize("series", range(32))
def test_no_two_series_look_the_same(series):
    looks = [str(look(n)) for n in range(32)]
    assert looks.count(looks[series]) == 1
    keys = [key("a", n) for n in range(32)]
    assert keys.count(keys[series]) == 1


def luminance(colour: tuple[float, ...]) -> float:
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def themes() -> list[dict[str, tuple[float, ...]]]:
    found = []
    for block in re.findall(r":root \{([^}]*--paper.*?)\}", STYLE, flags=re.DOTALL):
        colours = {
            name: tuple(int(hexed[i : i + 2], 16) / 255 for i in (0, 2, 4))
            for name, hexed in re.findall(r"--([\w-]+): #([0-9a-f]{6})", block)
        }
        heat = re.search(r"--heat: (\d+) (\d+) (\d+)", block)
        assert heat is not None
        found.append({**colours, "heat": tuple(int(n) / 255 for n in heat.groups())})
    return found


def test_all_texts_and_lines_stand_out_in_both_themes():
    light, dark = themes()
    assert luminance(light["paper"]) > 0.9 > 0.1 > luminance(dark["paper"])
    for theme in (light, dark):
        for ink in ("ink", "muted", "accent"):
            assert contrast(theme[ink], theme["paper"]) >= 4.5
            assert contrast(theme[ink], theme["card"]) >= 4.5
        assert contrast(theme["ink"], theme["note-paper"]) >= 4.5
        for number in range(1, 9):
            assert contrast(theme[f"s{number}"], theme["paper"]) >= 3
        strongest = tuple(
            0.55 * h + 0.45 * p for h, p in zip(theme["heat"], theme["paper"], strict=True)
        )
        assert contrast(theme["ink"], strongest) >= 4.5
