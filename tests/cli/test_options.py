"""How a table or a cube is read: options that say it, and lines that say what was done."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization, make_cones
from conenmf.judge.matching import match_components


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A folder with a table under a header of numbers, and one with a date and an identifier."""
    monkeypatch.chdir(tmp_path)
    X = make_cones(12, 2, 0.1, n_samples=40, rng=np.random.default_rng(0)).V.T.round(5)
    frame = pd.DataFrame(X, columns=400 + 10 * np.arange(12))
    frame.to_csv("spectra.csv", index=False)
    frame.to_csv("plain.csv", index=False, header=False)
    frame.columns = [f"gene {f}" for f in range(12)]
    frame.insert(3, "day", 20191201 + np.arange(40) % 30)
    frame.insert(5, "who", [f"p{n}" for n in range(40)])
    frame.to_csv("patients.csv", index=False)
    return X


@pytest.fixture
def diagnosed(run, capsys):
    """Diagnose data; the exit code and what is printed on both streams."""

    def diagnose(*arguments):
        code = run("diagnose", *arguments, "-k", 1, "--max-iter", 2, "--quiet")
        return code, *capsys.readouterr()

    return diagnose


def test_a_warning_names_the_flag_and_stays_out_of_json(tables, run, capsys):
    Path("two.csv").write_text("0,1\n" + "0.5,0.25\n0.75,0.125\n" * 9)
    assert run("rank", "two.csv", "--json") == 0
    done = capsys.readouterr()
    assert done.err.startswith("conenmf: warning: two.csv: ")
    assert "header\n" in done.err
    assert "was read as" in json.loads(done.out)["remarks"][0]


def test_more_components_than_features_raise_a_warning(tables, run, capsys):
    assert run("fit", "plain.csv", "-k", 13, "--max-iter", 2, "--no-report", "-o", "out") == 0
    words = "conenmf: warning: 13 components are more than the 12 features: 12 can describe any"
    assert words in capsys.readouterr().err


LOOK_LIKE = "columns that look like row numbers, identifiers or dates were read as data: day"


@pytest.mark.parametrize(
    ("options", "code", "output", "message"),
    [
        (
            [],
            3,
            "",
            "column 'who': 'p0' is not a number: write digits with '.', without units (delete a "
            "line that holds only units); or drop the column with --drop who",
        ),
        (
            ["--names-column", "who"],
            0,
            f"patients.csv: 40 samples, 13 features\n{LOOK_LIKE}",
            f"conenmf: warning: patients.csv: {LOOK_LIKE}; leave one out with --drop day, or name "
            "the rows by it, --names-column day\n",
        ),
        (
            ["--drop", "day", "--drop", 5],
            0,
            "patients.csv: 40 samples without names, 12 features\n",
            "",
        ),
        (["--drop", "month"], 4, "", "columns called 'month'; it has gene 0"),
    ],
)
def test_columns(tables, diagnosed, options, code, output, message):
    ended, printed, problem = diagnosed("patients.csv", *options)
    assert (ended, bool(problem)) == (code, bool(message))
    assert printed.startswith(output)
    assert message in problem


def test_options_of_tables_are_not_for_arrays(folder, fails):
    message = "--no-header is not an option for cells.npy: leave it out"
    fails(4, message, "diagnose", "cells.npy", "--no-header")


def test_how_a_table_was_read_is_kept_and_used_again(tables, run):
    options = ("--names-column", "who", "--drop", "day")
    assert run("fit", "patients.csv", "-k", 2, "-o", "out", "--no-report", *options) == 0
    result = Factorization.load("out/result.npz")
    assert result.names.sample_names[0] == "p0"
    assert (result.settings["names_column"], result.settings["drop"]) == ("who", ["day"])
    assert run("report", "out") == 0  # which reads the data again as the fit did
    assert run("report", "out", "--data", "patients.csv", *options) == 0
    assert run("transform", "out", "patients.csv", "-o", "new.csv", *options) == 0
    assert len(pd.read_csv("new.csv")) == 40


def test_names_in_files_of_their_own(tables, run, output_of, fails):
    np.save("bare.npy", tables)
    Path("words.txt").write_text("\n".join(f"word{f}" for f in range(12)))
    Path("people.txt").write_text("\n".join(f"person{n}" for n in range(40)))
    lists = ("--feature-names", "words.txt", "--sample-names", "people.txt")
    output = output_of("fit", "bare.npy", "-k", 2, "-o", "out", "--no-report", *lists)
    result = Factorization.load("out/result.npz")
    assert result.names.sample_names[39] == "person39"
    assert f"component 0: {', '.join(result.top_features(8)[0])}\n" in output
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["top_features"] == result.top_features()
    assert run("report", "out", "--data", "bare.npy", *lists) == 0
    Path("words.txt").write_text("too\nfew")
    message = "there are 2 names for 12 features: give one for each"
    fails(3, message, "fit", "bare.npy", "-o", "out", *lists)


def test_a_cube(folder, diagnosed, run):
    cube = np.random.default_rng(0).random((5, 8, 6))
    np.save("scene.npy", cube)
    code, output, _ = diagnosed("scene.npy")
    assert code == 0
    assert output.startswith(
        "scene.npy: 40 pixels of an image of 5 x 8, 6 features without names\n"
        "a cube of 5 x 8 x 6 was read as rows x columns x bands: each pixel is a sample"
    )
    np.save("scene.npy", np.moveaxis(cube, 2, 0))
    output = diagnosed("scene.npy", "--samples-in", "columns")[1]
    assert output.startswith("scene.npy: 40 pixels of an image of 5 x 8, 6 features")
    np.save("scene.npy", np.ones((3, 4, 4)))
    assert "for bands first, give --samples-in columns" in diagnosed("scene.npy")[2]
    assert run("fit", "scene.npy", "--samples-in", "columns", "-k", 1, "-o", "out") == 0
    assert Factorization.load("out/result.npz").names.pixels_shape == (4, 4)


def test_pure_pixels_of_a_scene(folder, output_of, fails, rng):
    spectra, shares = rng.random((3, 20)), rng.dirichlet(np.ones(3), 48)
    shares[[5, 17, 40]] = np.eye(3)  # pixels of one material each
    pixels = (shares @ spectra).astype("<f4")
    np.save("pixels.npy", pixels)
    Path("scene.img").write_bytes(pixels.T.tobytes())
    Path("scene.hdr").write_text(
        "ENVI\nsamples = 8\nlines = 6\nbands = 20\ndata type = 4\ninterleave = bsq\n"
        f"byte order = 0\nwavelength = {{{', '.join(map(str, range(400, 600, 10)))}}}"
    )
    recipe = ("-k", 3, "--init", "snpa", "--solver", "none", "-o", "out")
    for data in (("scene.hdr",), ("pixels.npy", "--pixels-shape", "6x8")):
        assert "48 pixels of an image of 6 x 8" in output_of("fit", *data, *recipe)
        result = Factorization.load("out/result.npz")
        assert (result.names.pixels_shape, result.n_iter) == ((6, 8), 0)
        assert match_components(spectra.T, result.W)[1].min() > 1 - 1e-6
    message = "images of 6 x 9 have 54 pixels, and there are 48 samples"
    fails(4, message, "fit", "pixels.npy", "--pixels-shape", "6x9", *recipe)
