"""What several tests of commands begin with."""

import pytest

from tests.commands.wards_on_disk import QUICK, run, write


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with files, and a finished run of them in a."""
    folder = tmp_path_factory.mktemp("trained")
    result = run("train", *write(folder), *QUICK, "--out", folder / "a")
    assert result.exit_code == 0, result.output
    return folder
