"""`transform` and `report`, the commands for a saved result."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization, factorize, from_rows, prepare


def test_transform_matches_features_by_name(folder, capsys, run):
    run("fit", "cells.csv", "-k", 3, "-o", "out")
    result = Factorization.load("out/result.npz")
    assert run("transform", "out", "turned.csv", "-o", "new.csv") == 0
    assert "90 samples in 3 components" in capsys.readouterr().out
    new = pd.read_csv("new.csv", index_col=0)
    assert new.index[0] == "cell 89"
    np.testing.assert_allclose(new.to_numpy()[::-1], result.H.T, atol=1e-10)
    assert run("transform", "out/result.npz", "cells.npy", "-o", "new.npy", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["relative_error"] == pytest.approx(result.relative_error)
    np.testing.assert_allclose(np.load("new.npy"), result.H.T, atol=1e-10)


def test_new_texts_are_read_with_the_words_of_the_model(tmp_path, monkeypatch, capsys, run):
    monkeypatch.chdir(tmp_path)
    texts = ["oak elm ash", "elm oak", "salt pepper", "pepper salt", "ash oak", "pepper salt"]
    Path("texts").mkdir()
    for number, text in enumerate(texts):
        Path(f"texts/{number}.txt").write_text(text)
    rows = [f'{number},"{text}"' for number, text in enumerate(texts)]
    Path("table.csv").write_text("\n".join(["no,body", *rows]))
    assert run("fit", "texts", "-k", 2, "-o", "of-folder") == 0
    out = capsys.readouterr().out
    assert "6 samples, 5 features\neach text is a sample, each of 5 words a feature" in out
    assert "component 0: " in out
    column = ("--text-column", "body")
    assert run("fit", "table.csv", *column, "-k", 2, "-o", "of-table") == 0
    for model, data, flags in (("of-folder", "texts", ()), ("of-table", "table.csv", column)):
        result = Factorization.load(f"{model}/result.npz")
        assert run("transform", model, data, "-o", "new.npy") == 0
        np.testing.assert_allclose(np.load("new.npy"), result.H.T, atol=1e-12)
        assert run("report", model, "--data", data, *flags) == 0
    Path("new.csv").write_text("body\nan elm and an oak\n")
    capsys.readouterr()
    assert run("transform", "of-folder", "new.csv", *column, "-o", "new.npy") == 0
    assert "by the 5 words of an earlier fit" in capsys.readouterr().out
    result = Factorization.load("of-folder/result.npz")
    assert np.load("new.npy")[0].argmax() == result.labels[1]


def test_report_of_a_result(folder, capsys, run):
    run("fit", "cells.csv", "-k", 3, "-o", "out")
    Path("out/report.html").unlink()
    assert run("report", "out") == 0
    assert "open out/report.html" in capsys.readouterr().out
    assert Path("out/report.html").exists()
    assert run("report", "out/result.npz", "-o", "pictures.html", "--image-shape", "5x6") == 0
    run("fit", "cells.csv", "-k", 3, "-o", "out", "--no-report")
    assert run("report", "out", "--data", "cells.csv", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["report"] == "out/report.html"
    assert "report.html" in json.loads(Path("out/summary.json").read_text())["files"]
    assert run("fit", "cells.csv", "-k", 2, "-o", "out", "--tables", "none") == 0  # replaces it


def test_data_are_prepared_again_from_what_the_result_keeps(folder, capsys, run):
    counts = np.random.default_rng(0).poisson(0.7, (90, 30))
    names = [f"word {f}" for f in range(30)]
    frame = pd.DataFrame(counts, [f"text {n}" for n in range(90)], names)
    frame.to_csv("words.csv")
    frame.iloc[::-1, ::-1].to_csv("turned.csv")
    steps = ("--normalize-total", 100, "--log1p", "--tfidf")
    assert run("fit", "words.csv", "-k", 3, "-o", "out", "--no-report", *steps) == 0
    assert (
        "prepared: each sample scaled to a sum of 100, then log(1 + x)" in capsys.readouterr().out
    )
    result = Factorization.load("out/result.npz")
    V = prepare(from_rows(counts), normalize_total=100, log1p=True, tfidf=True)
    expected = factorize(V, 3)
    assert result.relative_error == pytest.approx(expected.relative_error, rel=1e-9)
    assert run("transform", "out", "turned.csv", "-o", "new.npy") == 0
    np.testing.assert_allclose(np.load("new.npy")[::-1], result.H.T, atol=1e-10)
    assert run("transform", "out", "turned.csv", "-o", "new.npy", "--tfidf") == 2
    assert run("report", "out", "--data", "words.csv") == 0
    for command, more in (("rank", []), ("diagnose", []), ("compare", [])):
        assert run(command, "words.csv", "--log1p", "--normalize", "--json", *more) == 0
        remarks = json.loads(capsys.readouterr().out.splitlines()[-1])["remarks"]
        assert remarks[-1].endswith(
            "log(1 + x) of each entry, then each sample scaled to unit length"
        )
    np.save("ones.npy", np.ones((5, 4)))
    assert run("fit", "ones.npy", "--tfidf") == 4
    assert "--tfidf gives every feature the weight" in capsys.readouterr().err
