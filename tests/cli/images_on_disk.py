"""Small files for the command line: 64 images of 8 × 8 in eight bags, bright ones and dark ones."""

import numpy as np
import pandas as pd
from PIL import Image


def write_images(folder, n=64):
    """Write images/, files.csv and bags.csv; return the arguments that name them."""
    rng = np.random.default_rng(0)
    bag = np.arange(n) // 8
    bright = rng.random(n) < np.linspace(0.1, 0.9, n // 8)[bag]
    pixels = rng.integers(100, size=(n, 8, 8, 3)) + 120 * bright[:, None, None, None]
    (folder / "images").mkdir()
    for number, image in enumerate(pixels.astype(np.uint8)):
        Image.fromarray(image).save(folder / "images" / f"{number:03}.png")
    files = [f"{number:03}.png" for number in range(n)]
    pd.DataFrame({"file": files, "bag": bag}).to_csv(folder / "files.csv", index=False)
    shares = pd.DataFrame({"bright": bright, "dark": ~bright}).groupby(bag).mean()
    shares.rename_axis("bag").reset_index().to_csv(folder / "bags.csv", index=False)
    named = ["--images", folder / "images", "--proportions", folder / "bags.csv"]
    return [folder / "files.csv", *named]


PLACE = ["--threads", "1", "--device", "cpu"]
STRONG = ["--preset", "strong", "--epochs", "2", *PLACE]
