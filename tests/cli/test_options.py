"""How a table or a cube is read: options that say it, and lines that say what was done."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization, make_cones


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


def diagnosed(run, capsys, *arguments):
    code = run("diagnose", *arguments, "-k", 1, "--max-iter", 2, "--quiet")
    done = capsys.readouterr()
    return code, done.out, done.err


def test_a_doubt_names_the_flag_and_stays_out_of_json(tables, run, capsys):
    Path("two.csv").write_text("0,1\n" + "0.5,0.25\n0.75,0.125\n" * 9)
    assert run("rank", "two.csv", "--json") == 0
    done = capsys.readouterr()
    assert done.err.startswith("conenmf: warning: two.csv: ")
    assert "header\n" in done.err
    assert "taken as" in json.loads(done.out)["remarks"][0]


def test_columns(tables, run, capsys):
    code, _, err = diagnosed(run, capsys, "patients.csv")
    assert code == 3
    assert "column 'who': 'p0' is not a number" in err
    assert "drop the column with --drop who" in err
    code, out, err = diagnosed(run, capsys, "patients.csv", "--names-column", "who")
    assert code == 0
    assert (
        "40 samples, 13 features\ncolumns that look like row numbers, identifiers or dates were "
        "read as data: day" in out
    )
    assert err == (
        "conenmf: warning: patients.csv: columns that look like row numbers, identifiers or dates "
        "were read as data: day; leave one out with --drop day, or name the rows by it, "
        "--names-column day\n"
    )
    code, out, err = diagnosed(run, capsys, "patients.csv", "--drop", "day", "--drop", 5)
    assert (code, err) == (0, "")
    assert out.startswith("patients.csv: 40 samples without names, 12 features\n")
    code, _, err = diagnosed(run, capsys, "patients.csv", "--drop", "month")
    assert code == 4
    assert "columns called 'month'; it has gene 0" in err
    np.save("a.npy", tables)
    code, _, err = diagnosed(run, capsys, "a.npy", "--no-header")
    assert code == 4
    assert "--no-header is not an option for a.npy: leave it out" in err


def test_how_a_table_was_read_is_kept_and_used_again(tables, run, capsys):
    options = ("--names-column", "who", "--drop", "day")
    assert run("fit", "patients.csv", "-k", 2, "-o", "out", "--no-report", *options) == 0
    result = Factorization.load("out/result.npz")
    assert result.names.sample_names[0] == "p0"
    assert (result.settings["names_column"], result.settings["drop"]) == ("who", ["day"])
    assert run("report", "out") == 0
    assert run("report", "out", "--data", "patients.csv", *options) == 0
    assert run("transform", "out", "patients.csv", "-o", "new.csv", *options) == 0
    assert len(pd.read_csv("new.csv")) == 40


def test_names_in_files_of_their_own(tables, run, capsys):
    np.save("bare.npy", tables)
    Path("words.txt").write_text("\n".join(f"word{f}" for f in range(12)))
    Path("people.txt").write_text("\n".join(f"person{n}" for n in range(40)))
    lists = ("--feature-names", "words.txt", "--sample-names", "people.txt")
    assert run("fit", "bare.npy", "-k", 2, "-o", "out", "--no-report", *lists) == 0
    out = capsys.readouterr().out
    result = Factorization.load("out/result.npz")
    assert result.names.sample_names[39] == "person39"
    top = result.top_features(8)
    assert f"component 0: {', '.join(top[0])}\n" in out
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["top_features"] == result.top_features()
    assert run("report", "out", "--data", "bare.npy", *lists) == 0
    Path("words.txt").write_text("too\nfew")
    assert run("fit", "bare.npy", "-o", "out", *lists) == 3
    assert "there are 2 names for 12 features: give one for each" in capsys.readouterr().err


def test_a_cube(tmp_path, monkeypatch, run, capsys):
    monkeypatch.chdir(tmp_path)
    cube = np.random.default_rng(0).random((5, 8, 6))
    np.save("scene.npy", cube)
    code, out, _ = diagnosed(run, capsys, "scene.npy")
    assert code == 0
    assert out.startswith(
        "scene.npy: 40 pixels of an image of 5 x 8, 6 features without names\n"
        "a cube of 5 x 8 x 6 was taken as rows x columns x bands: each pixel is a sample"
    )
    np.save("scene.npy", np.moveaxis(cube, 2, 0))
    _, out, _ = diagnosed(run, capsys, "scene.npy", "--samples-in", "columns")
    assert out.startswith("scene.npy: 40 pixels of an image of 5 x 8, 6 features")
    np.save("scene.npy", np.ones((3, 4, 4)))
    _, _, err = diagnosed(run, capsys, "scene.npy")
    assert "for bands first, give --samples-in columns" in err
    assert run("fit", "scene.npy", "--samples-in", "columns", "-k", 1, "-o", "out") == 0
    assert Factorization.load("out/result.npz").names.pixels_shape == (4, 4)


def test_pure_pixels_of_a_scene(tmp_path, monkeypatch, run, capsys, rng):
    monkeypatch.chdir(tmp_path)
    spectra, shares = rng.random((3, 20)), rng.dirichlet(np.ones(3), 48)
    shares[[5, 17, 40]] = np.eye(3)  # pixels of one material each
    pixels = (shares @ spectra).astype("<f4")
    np.save("pixels.npy", pixels)
    Path("scene.img").write_bytes(pixels.T.tobytes())
    header = {"samples": 8, "lines": 6, "bands": 20, "data type": 4, "interleave": "bsq"}
    header["byte order"] = 0
    fields = [f"{name} = {value}" for name, value in header.items()]
    wavelengths = ", ".join(str(400 + 10 * band) for band in range(20))
    Path("scene.hdr").write_text("\n".join(["ENVI", *fields, f"wavelength = {{{wavelengths}}}"]))
    recipe = ("-k", 3, "--init", "snpa", "--solver", "none", "-o", "out")
    for data in (("scene.hdr",), ("pixels.npy", "--pixels-shape", "6x8")):
        assert run("fit", *data, *recipe) == 0
        assert "48 pixels of an image of 6 x 8" in capsys.readouterr().out
        result = Factorization.load("out/result.npz")
        assert result.names.pixels_shape == (6, 8)
        assert result.n_iter == 0
        units = [W / np.linalg.norm(W, axis=0) for W in (result.W, spectra.T)]
        assert (units[0].T @ units[1]).max(axis=0).min() > 1 - 1e-6
    assert run("fit", "pixels.npy", "--pixels-shape", "6x9", *recipe) == 4
    assert "images of 6 x 9 have 54 pixels, and there are 48 samples" in capsys.readouterr().err
