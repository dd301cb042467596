"""`transform` and `report`, the commands for a saved result."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conenmf import Factorization, factorize, from_rows, prepare


def test_transform_matches_features_by_name(folder, output_of, run):
    run("fit", "cells.csv", "-k", 3, "-o", "out")
    result = Factorization.load("out/result.npz")
    output = output_of("transform", "out", "turned.csv", "-o", "new.csv")
    assert "90 samples in 3 components" in output
    new = pd.read_csv("new.csv", index_col=0)
    assert new.index[0] == "cell 89"
    np.testing.assert_allclose(new.to_numpy()[::-1], result.H.T, atol=1e-10)
    answer = output_of("transform", "out/result.npz", "cells.npy", "-o", "new.npy", "--json")
    assert answer["relative_error"] == pytest.approx(result.relative_error)
    np.testing.assert_allclose(np.load("new.npy"), result.H.T, atol=1e-10)


def test_new_texts_are_read_with_the_words_of_the_model(folder, output_of, run):
    texts = ["oak elm ash", "elm oak", "salt pepper", "pepper salt", "ash oak", "pepper salt"]
    Path("texts").mkdir()
    for number, text in enumerate(texts):
        Path(f"texts/{number}.txt").write_text(text)
    rows = [f'{number},"{text}"' for number, text in enumerate(texts)]
    Path("table.csv").write_text("\n".join(["no,body", *rows]))
    output = output_of("fit", "texts", "-k", 2, "-o", "of-folder")
    assert "6 samples, 5 features\neach text is a sample, each of 5 words a feature" in output
    assert "component 0: " in output
    column = ("--text-column", "body")
    assert run("fit", "table.csv", *column, "-k", 2, "-o", "of-table") == 0
    for model, data, flags in (("of-folder", "texts", ()), ("of-table", "table.csv", column)):
        result = Factorization.load(f"{model}/result.npz")
        assert run("transform", model, data, "-o", "new.npy") == 0
        np.testing.assert_allclose(np.load("new.npy"), result.H.T, atol=1e-12)
        assert run("report", model, "--data", data, *flags) == 0
    Path("new.csv").write_text("body\nan elm and an oak\n")
    output = output_of("transform", "of-folder", "new.csv", *column, "-o", "new.npy")
    assert "by the 5 words of an earlier fit" in output
    result = Factorization.load("of-folder/result.npz")
    assert np.load("new.npy")[0].argmax() == result.labels[1]


def test_report_of_a_result(folder, output_of, run):
    run("fit", "cells.csv", "-k", 3, "-o", "out")
    Path("out/report.html").unlink()
    assert "open out/report.html" in output_of("report", "out")
    assert Path("out/report.html").exists()
    output_of("report", "out/result.npz", "-o", "pictures.html", "--image-shape", "5x6")
    output_of("fit", "cells.csv", "-k", 3, "-o", "out", "--no-report")
    answer = output_of("report", "out", "--data", "cells.csv", "--json")
    assert answer["report"] == "out/report.html"
    assert "report.html" in json.loads(Path("out/summary.json").read_text())["files"]
    output_of("fit", "cells.csv", "-k", 2, "-o", "out", "--tables", "none")  # replaces it


def test_data_are_prepared_again_from_what_the_result_keeps(folder, output_of, fails, run):
    counts = np.random.default_rng(0).poisson(0.7, (90, 30))
    names = [f"word {f}" for f in range(30)]
    frame = pd.DataFrame(counts, [f"text {n}" for n in range(90)], names)
    frame.to_csv("words.csv")
    frame.iloc[::-1, ::-1].to_csv("turned.csv")
    steps = ("--normalize-total", 100, "--log1p", "--tfidf")
    output = output_of("fit", "words.csv", "-k", 3, "-o", "out", "--no-report", *steps)
    assert "prepared: each sample scaled to a sum of 100, then log(1 + x)" in output
    result = Factorization.load("out/result.npz")
    expected = factorize(prepare(from_rows(counts), normalize_total=100, log1p=True, tfidf=True), 3)
    assert result.relative_error == pytest.approx(expected.relative_error, rel=1e-9)
    assert run("transform", "out", "turned.csv", "-o", "new.npy") == 0
    np.testing.assert_allclose(np.load("new.npy")[::-1], result.H.T, atol=1e-10)
    assert run("transform", "out", "turned.csv", "-o", "new.npy", "--tfidf") == 2
    assert run("report", "out", "--data", "words.csv") == 0
    for command in ("rank", "diagnose", "compare"):
        answer = output_of(command, "words.csv", "--log1p", "--normalize", "--json")
        assert answer["remarks"][-1].endswith(
            "log(1 + x) of each entry, then each sample scaled to unit length"
        )
    np.save("ones.npy", np.ones((5, 4)))
    fails(4, "--tfidf gives every feature the weight", "fit", "ones.npy", "--tfidf")
