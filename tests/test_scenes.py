"""Scenes: drawn ones with a known truth are unmixed, by the model and on the command line."""

import json
from itertools import product
from types import SimpleNamespace

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat
from scipy.optimize import check_grad, nnls

from conenmf import ConeNMF, from_rows, open_data
from conenmf.cli import main
from conenmf.cli.inputs import read_scene_reference
from conenmf.errors import ComponentsError, DataError, FileFormatError, InputWarning
from conenmf.judge.matching import match_scene, match_spectra
from conenmf.solve import simplex as module
from conenmf.solve.scenes import (
    _largest_simplex,
    _mixtures,
    abundances,
    choose_endmembers,
    pure_pixels,
)
from conenmf.solve.simplex import _loss, _Space, _with_known, simplex


def draw_scene(K=3, *, purest=0.8, noise=0.005, side=40, bands=60, seed=0):
    """A scene (pixels, bands), its spectra (K, bands) and its abundances (pixels, K)."""
    rng = np.random.default_rng(seed)
    wavelengths = np.linspace(0, 1, bands)
    centres, widths = rng.random((K, 3, 1)), rng.uniform(0.05, 0.3, (K, 3, 1))
    heights = rng.uniform(0.1, 0.5, (K, 3, 1))
    spectra = 0.1 + (heights * np.exp(-(((wavelengths - centres) / widths) ** 2))).sum(axis=1)
    abundances = rng.dirichlet(np.ones(K), side**2)
    while (too_pure := abundances.max(axis=1) > purest).any():
        abundances[too_pure] = rng.dirichlet(np.ones(K), too_pure.sum())
    pixels = abundances @ spectra + noise * rng.standard_normal((side**2, bands))
    return pixels, spectra, abundances


@pytest.mark.parametrize(("K", "purest"), [(2, 1.0), (3, 1.0), (3, 0.8), (5, 1.0), (5, 0.8)])
def test_a_scene_is_unmixed_with_and_without_pure_pixels(K, purest):
    pixels, spectra, abundances = draw_scene(K, purest=purest, seed=K)
    model = ConeNMF.for_scenes(K)
    found = model.fit_transform(pixels)
    match = match_spectra(
        spectra, model.components_, library_abundances=abundances, abundances=found
    )
    assert match.angles.max() < 1.5
    assert match.rmse < 0.04
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(model.transform(pixels), found, atol=1e-6)


def test_the_smallest_noise_is_what_each_direction_beyond_the_components_has(monkeypatch):
    """Of a few bands, most directions belong to the components and hold no noise alone."""
    pixels = draw_scene(4, noise=0.01, bands=6, seed=2)[0]
    given = []

    def facets(Y, sizes, noise, *known):
        given.append(noise)
        return facets_of(Y, sizes, noise, *known)

    facets_of = module._facets
    monkeypatch.setattr(module, "_facets", facets)
    simplex(from_rows(pixels, negative="keep"), 4)
    size = np.sqrt((pixels**2).sum() / len(pixels))
    (noise,) = given
    assert noise[0] * size == pytest.approx(0.01, rel=0.05)
    assert noise[0] <= noise[1]


def test_materials_that_cover_much_of_a_scene_alone():
    rng = np.random.default_rng(3)
    _, spectra, abundances = draw_scene(4, seed=3)
    abundances = np.maximum(abundances - 0.2, 0)  # most pixels lack some materials
    abundances /= abundances.sum(axis=1, keepdims=True)
    pixels = abundances @ spectra + 0.003 * rng.standard_normal((1600, 60))
    assert match_spectra(spectra, ConeNMF.for_scenes(4).fit(pixels).components_).angles.max() < 0.5


def test_a_few_pure_pixels_fix_the_vertices():
    rng = np.random.default_rng(1)
    pixels, spectra, _ = draw_scene(4, seed=1)
    pixels[::80] = np.repeat(spectra, 5, axis=0) + 0.005 * rng.standard_normal((20, 60))
    found = simplex(from_rows(pixels, negative="keep"), 4).T
    noise_of_one = np.degrees(0.005 * np.sqrt(60) / np.linalg.norm(spectra, axis=1).max())
    assert match_spectra(spectra, found).angles.mean() < noise_of_one / 4


def test_brightness_that_varies_does_not_move_the_spectra():
    pixels, spectra, _ = draw_scene(3, noise=0.002)
    bright = np.random.default_rng(1).uniform(0.6, 1.4, (len(pixels), 1))
    model = ConeNMF.for_scenes(3).fit(pixels * bright)
    assert match_spectra(spectra, model.components_).angles.max() < 1


@pytest.mark.parametrize("unit", [1000.0, 1e-6])
def test_the_unit_of_the_scene_does_not_matter(unit):
    pixels, _, _ = draw_scene(3)
    first, second = ConeNMF.for_scenes(3), ConeNMF.for_scenes(3)
    A, B = first.fit_transform(pixels), second.fit_transform(unit * pixels)
    np.testing.assert_allclose(second.components_, unit * first.components_, rtol=1e-3)
    np.testing.assert_allclose(A, B, atol=1e-3)


def test_the_search_ends_soon_also_where_materials_look_alike(monkeypatch):
    pixels = 1 + 0.1 * draw_scene(5, purest=1.0)[0]
    whole = simplex(from_rows(pixels), 5)
    monkeypatch.setattr("conenmf.solve.simplex._MAX_ITER", 150)
    np.testing.assert_array_equal(simplex(from_rows(pixels), 5), whole)


def test_exact_mixtures_have_exact_spectra():
    pixels, spectra, _ = draw_scene(3, noise=0.0)
    assert match_spectra(spectra, simplex(from_rows(pixels), 3).T).angles.max() < 0.3


def test_many_pixels_are_drawn_from_and_the_same_each_time(monkeypatch):
    pixels, spectra, _ = draw_scene(3)
    monkeypatch.setattr("conenmf.solve.simplex._MAX_PIXELS", 1000)
    first, second = (simplex(from_rows(pixels), 3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert match_spectra(spectra, first.T).angles.max() < 2


@pytest.mark.parametrize("n_known", [0, 1])
def test_the_gradient_of_the_likelihood(n_known):
    Y = np.random.default_rng(5).random((3, 50)) + 0.2
    Q = np.array([[1.0, -0.2, 0.1], [0.1, 0.8, -0.3], [-0.6, -0.1, 0.7]])
    scale = Q.sum(axis=0)
    known = np.array([[1.0], [0.2], [0.1]])
    space = _with_known(Q, scale, known) if n_known else _Space(Q, scale)
    given = np.r_[space.start, -0.1, -0.07, np.log(0.3)]
    shared = Y, np.array([2.0, 0.5, 0.9]), space, Y.sum(axis=0) / 2
    error = check_grad(lambda x: _loss(x, *shared)[0], lambda x: _loss(x, *shared)[1], given)
    assert error < 1e-4 * np.linalg.norm(_loss(given, *shared)[1])


@pytest.mark.parametrize("chosen", [[0], [2], [1, 0], [0, 1, 2]])
def test_known_spectra_leave_the_others_as_good_as_without(chosen):
    pixels, spectra, _ = draw_scene(3, seed=3)
    free = ConeNMF.for_scenes(3).fit(pixels)
    model = ConeNMF.for_scenes(3, fixed=spectra[chosen]).fit(pixels)
    np.testing.assert_array_equal(model.components_[: len(chosen)], spectra[chosen])
    worst = match_spectra(spectra, free.components_).angles.max()
    assert match_spectra(spectra, model.components_).angles.max() <= worst
    # the free simplex fits the noise of its three directions too, 3 of 60
    assert model.relative_error_ < free.relative_error_ / np.sqrt(1 - 3 / 60)


def test_a_known_spectrum_may_be_rare():
    rng = np.random.default_rng(0)
    _, spectra, abundances = draw_scene(3, seed=2)
    abundances[:, 0] *= 0.05
    abundances /= abundances.sum(axis=1, keepdims=True)
    pixels = abundances @ spectra + 0.005 * rng.standard_normal((1600, 60))
    model = ConeNMF.for_scenes(3, fixed=spectra[:1]).fit(pixels)
    assert match_spectra(spectra, model.components_).angles.max() < 1


def test_known_spectra_of_another_scene_or_unit_are_named(refuses):
    pixels, spectra, _ = draw_scene(3)
    twice = ConeNMF.for_scenes(3, fixed=spectra[[0, 0]])
    refuses(DataError, "cannot be told apart", twice.fit, pixels)
    with pytest.warns(InputWarning, match="1e.03 times as bright as materials"):
        ConeNMF.for_scenes(3, fixed=1000 * spectra[:1]).fit(pixels)


@pytest.mark.filterwarnings("ignore:a scene of 1 pixels")
@pytest.mark.parametrize("K", [1, "auto"])
@pytest.mark.parametrize("shape", [(1, 5), (5, 1), (50, 8)])
def test_equal_pixels_are_one_material(shape, K):
    pixels = np.full(shape, 2.0)
    model = ConeNMF.for_scenes(K).fit(pixels)
    np.testing.assert_allclose(model.components_, pixels[:1], rtol=1e-12)


def varied(pixels, spectra, shares, size, rng):
    """Let the spectrum of each material vary from pixel to pixel, along two directions each."""
    bands = np.linspace(0, 2 * np.pi, spectra.shape[1])
    for k, spectrum in enumerate(spectra):
        shapes = np.stack([np.sin((k + 1) * bands), np.cos((k + 2) * bands)])
        change = size * rng.standard_normal((len(pixels), 2)) @ shapes
        pixels = pixels + shares[:, [k]] * spectrum * change
    return np.maximum(pixels, 0)


def test_spectra_that_vary_are_means_of_nearly_pure_pixels():
    rng = np.random.default_rng(3)
    _, spectra, shares = draw_scene(3, purest=1.0, noise=0.0, seed=3)
    shares = shares**4 / (shares**4).sum(axis=1, keepdims=True)  # many pixels are nearly pure
    noise = 0.002 * rng.standard_normal((1600, 60))
    pixels = varied(shares @ spectra, spectra, shares, 0.06, rng) + noise
    model, corners = ConeNMF.for_scenes(3), ConeNMF.for_scenes(3, init="simplex")
    angles = []
    for one in (model, corners):
        one.fit(pixels)
        angles.append(match_spectra(spectra, one.components_).angles.mean())
    assert model.result_.init_used == "pure-pixels"
    assert any("spectra vary" in line for line in model.result_.summary())
    assert angles[0] < min(4, angles[1])
    again = ConeNMF.for_scenes(3).fit(pixels)
    np.testing.assert_array_equal(again.components_, model.components_)


def test_pure_pixels_are_found_and_averaged(rng):
    _, spectra, shares = draw_scene(4, noise=0.0, seed=1)
    shares[:40] = np.repeat(np.eye(4), 10, axis=0)
    pixels = shares @ spectra + 0.003 * rng.standard_normal((1600, 60))
    V = from_rows(pixels, negative="keep")
    found = pure_pixels(V, 4).T
    assert np.abs(found[match_spectra(spectra, found).order] - spectra).max() < 0.02
    known = pure_pixels(V, 4, known=spectra[:2].T).T
    np.testing.assert_array_equal(known[:2], spectra[:2])
    assert match_spectra(spectra, known).angles.max() < 2


@pytest.mark.parametrize("seed", range(8))
def test_no_exchange_of_a_pixel_makes_the_simplex_larger(seed):
    X = np.random.default_rng(seed).random((4, 60))
    mean = X.mean(axis=1, keepdims=True)
    axes = np.linalg.svd(X - mean)[0][:, :2]

    def area(corners):
        flat = axes.T @ (corners - mean)
        return abs(np.linalg.det(flat[:, 1:] - flat[:, :1]))

    corners = _largest_simplex(X, 3, None)
    for k, pixel in product(range(3), X.T):
        other = corners.copy()
        other[:, k] = pixel
        assert area(other) <= area(corners) * (1 + 1e-8)


def shaded_scene(seed=1, *, dark=False):
    """A scene whose brightness varies by a quarter; maybe with a dark material."""
    _, spectra, shares = draw_scene(3, seed=seed, noise=0.0)
    if dark:
        spectra[0] *= 0.1
    rng = np.random.default_rng(seed)
    bright = np.clip(1 + 0.25 * rng.standard_normal((1600, 1)), 0.4, 1.6)
    pixels = bright * (shares @ spectra) + 0.003 * rng.standard_normal((1600, 60))
    return pixels, spectra, shares, bright[:, 0]


@pytest.mark.parametrize(("dark", "limit"), [(False, 0.02), (True, 0.05)])
def test_abundances_do_not_depend_on_brightness(dark, limit):
    pixels, spectra, shares, bright = shaded_scene(dark=dark)
    model = ConeNMF.for_scenes(3)
    found = model.fit_transform(pixels)
    given = {"library_abundances": shares, "abundances": found}
    assert match_spectra(spectra, model.components_, **given).rmse < limit
    result = model.result_
    assert result.is_shaded
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-9)
    np.testing.assert_allclose(result.H.T, found * result.brightness[:, None], atol=1e-12)
    np.testing.assert_allclose(result.coefficients, found, rtol=1e-9)
    np.testing.assert_allclose(model.transform(pixels), found, atol=1e-6)
    assert np.corrcoef(result.brightness, bright)[0, 1] > 0.95
    error = np.linalg.norm(pixels - result.H.T @ result.W.T) / np.linalg.norm(pixels)
    assert result.relative_error == pytest.approx(error, rel=1e-6)
    assert any("brightness varies by 2" in line for line in result.summary())


def test_a_saved_model_keeps_the_brightness(tmp_path):
    pixels = shaded_scene()[0]
    model = ConeNMF.for_scenes(3).fit(pixels)
    model.save(tmp_path / "model.npz")
    loaded = ConeNMF.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.transform(pixels), model.transform(pixels))
    assert not model.result_.problem.penalties.sum_to_one


@pytest.mark.parametrize("seed", [1, 3])
def test_even_light_keeps_sums_of_one(seed):
    pixels, spectra, shares = draw_scene(3, seed=seed)
    chosen, plain = ConeNMF.for_scenes(3), ConeNMF.for_scenes(3, init="simplex")
    errors = []
    for model in (chosen, plain):
        given = {"library_abundances": shares, "abundances": model.fit_transform(pixels)}
        errors.append(match_spectra(spectra, model.components_, **given).rmse)
    assert not chosen.result_.is_shaded
    assert errors[0] <= 1.05 * errors[1]
    assert "scene" not in plain.result_.settings


def test_holes_and_known_spectra_keep_the_model():
    pixels, spectra, *_ = shaded_scene(seed=2)
    holes = np.where(np.random.default_rng(0).random(pixels.shape) < 0.01, np.nan, pixels)
    model = ConeNMF.for_scenes(3, missing="nan").fit(holes)
    assert (model.result_.init_used, model.result_.is_shaded) == ("simplex", True)
    np.testing.assert_allclose(model.transform(holes).sum(axis=1), 1, rtol=1e-6)
    known = ConeNMF.for_scenes(3, fixed=spectra[:1]).fit(pixels)
    np.testing.assert_array_equal(known.components_[:1], spectra[:1])
    assert known.result_.is_shaded
    assert match_spectra(spectra, known.components_).angles.max() < 1


def test_pixels_without_measurements_are_named():
    pixels = np.maximum(draw_scene(3)[0], 0)
    pixels[:7] = 0
    pixels[10:15, 20:40] = 2.0
    pixels[:, 50] = 0
    said = choose_endmembers(from_rows(pixels), 3).reason
    assert "7 pixels are zero in all bands: leave them out" in said
    assert "5 pixels look saturated" in said
    assert "1 bands are zero in all pixels" in said
    found = ConeNMF.for_scenes(3).fit_transform(pixels)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-6)


def test_abundances_of_a_black_pixel_are_equal():
    found = abundances(np.array([[0.0, 0.0], [2.0, 6.0]]))
    np.testing.assert_array_equal(found, [[0.5, 0.5], [0.25, 0.75]])


def write_matlab(path, kind, **arrays):
    if kind == "5":
        savemat(path, arrays)
        return
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            file[name] = array.T
            file[name].attrs["MATLAB_class"] = np.bytes_("double")


@pytest.mark.parametrize("kind", ["5", "7.3"])
def test_a_matlab_file_with_its_reference_is_a_scene(tmp_path, kind, refuses):
    rng = np.random.default_rng(0)
    shares, spectra = rng.dirichlet(np.ones(3), (6, 7)), rng.random((12, 3))
    pixels = shares.reshape(-1, 3, order="F") @ spectra.T  # column by column, as MATLAB does
    path = tmp_path / "scene.mat"
    write_matlab(path, kind, Y=pixels.T, A=shares, M=spectra)
    for options in ({}, {"samples_in": "columns"}):
        V = open_data(path, **options)
        assert V.names.pixels_shape == (7, 6)
        assert "'Y' was read as a scene of 42 pixels and 12 bands" in V.remarks[0]
        np.testing.assert_allclose(np.asarray(V.columns(np.arange(42))).T, pixels)
    other = tmp_path / "two.mat"
    write_matlab(other, kind, Y=pixels.T, Z=pixels.T, A=shares)
    refuses(FileFormatError, "name one of them", open_data, other)


def test_a_reference_is_compared_in_its_own_convention():
    pixels, spectra, shares = draw_scene(3, noise=0.001)
    V = from_rows(pixels, negative="keep")
    plain, said = match_scene(V, spectra.T, spectra, [shares[::-1], shares])
    assert plain.rmse < 0.01
    assert "(least squares with sums of one; 0.00" in said
    scaled = spectra / spectra.max(axis=1, keepdims=True)
    bright = np.random.default_rng(0).uniform(0.5, 1.5, (len(pixels), 1))
    V = from_rows(bright * (shares @ scaled))
    other, said = match_scene(V, 3 * spectra[::-1].T, scaled, [shares])
    assert other.rmse < 1e-6
    assert "RMSE of abundances 0.000 (coefficients of endmembers of maximum one" in said


def test_the_command_line_compares_a_scene_with_its_reference(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pixels, spectra, shares, _ = shaded_scene()
    savemat("scene.mat", {"Y": np.maximum(pixels, 0).T, "A": shares.T, "M": spectra.T})
    command = ["fit", "scene.mat", "-k", "3", "--no-report", "-q", "-o", "out", "--scene"]
    assert main([*command, "--reference", "scene.mat"]) == 0
    output = capsys.readouterr().out
    assert "degrees to the reference, mean 0." in output
    assert "RMSE of abundances 0.0" in output
    assert "brightness varies" in output
    table = pd.read_csv("out/coefficients.csv")
    assert table.columns[-1] == "brightness"
    columns = [name for name in table if name.startswith("component")]
    np.testing.assert_allclose(table[columns].sum(axis=1), 1)
    assert main(["transform", "out", "scene.mat", "-o", "again.npy", "-q"]) == 0
    np.testing.assert_allclose(np.load("again.npy"), table[columns], atol=1e-9)
    capsys.readouterr()
    assert main([*command[:-1], "--reference", "scene.mat", "--force"]) != 0
    assert "add --scene" in capsys.readouterr().err


def test_scenes_that_cannot_be_unmixed_say_why(refuses):
    pixels = draw_scene(3, noise=0.0)[0]
    refuses(ComponentsError, "lie in 3 dimensions", ConeNMF.for_scenes(5).fit, pixels)
    refuses(ComponentsError, "at most 4 endmembers, not 5", simplex, from_rows(pixels[:, :4]), 5)


def test_a_direction_of_a_millionth_of_a_pixel_is_no_rounding(rng, refuses):
    spectra = rng.random((2, 12))
    spectra = np.vstack([spectra, spectra[0] + 3e-6 * rng.random(12)])
    V = from_rows(rng.dirichlet(np.ones(3), 200) @ spectra)
    assert np.isfinite(simplex(V, 3)).all()
    refuses(ComponentsError, "lie in 3 dimensions", simplex, V, 4)


def test_a_cube_in_memory_says_how_to_make_a_matrix_of_it(refuses):
    remedy = r"cube, pass X.reshape\(-1, X.shape\[2\]\)"
    refuses(DataError, remedy, ConeNMF.for_scenes(3).fit, np.ones((5, 6, 7)))


def test_bands_in_rows_raise_a_warning():
    with pytest.warns(InputWarning, match="are bands in the rows"):
        ConeNMF.for_scenes(3).fit(draw_scene(3)[0].T)


def test_spectra_are_matched_with_a_library(refuses):
    library = np.eye(3)[:2]
    match = match_spectra(
        library,
        [[0, 1, 1], [0, 0, 1], [2, 0, 0]],
        library_abundances=[[1, 0], [0, 1]],
        abundances=[[0.0, 0.0, 1.0], [0.5, 0.5, 0.0]],
    )
    assert match.order.tolist() == [2, 0]
    np.testing.assert_allclose(match.angles, [0, 45], atol=1e-6)
    assert match.rmse == pytest.approx(0.25)
    refuses(DataError, "found", match_spectra, library, np.eye(4))
    refuses(DataError, "swap them", match_spectra, np.eye(3), library)


def test_wavelengths_beside_a_cube_in_a_mat_file(tmp_path):
    pixels, _, _ = draw_scene(3)
    cube, wavelengths = np.abs(pixels).reshape(40, 40, 60), np.linspace(400, 990, 60)
    savemat(tmp_path / "scene.mat", {"cube": cube, "wavelength": wavelengths})
    V = open_data(tmp_path / "scene.mat")
    assert (V.names.pixels_shape, V.names.feature_names[:2]) == ((40, 40), ("400", "410"))
    savemat(tmp_path / "turned.mat", {"Y": np.abs(pixels).T, "wavelength": wavelengths})
    turned = open_data(tmp_path / "turned.mat", samples_in="columns")
    assert turned.names.feature_names == V.names.feature_names
    savemat(tmp_path / "two.mat", {"cube": cube, "map": cube[..., 0], "wavelength": wavelengths})
    assert open_data(tmp_path / "two.mat", dataset="cube").names == V.names
    savemat(tmp_path / "labels.mat", {"cube": cube, "labels": np.repeat([1, 2], 30)})
    assert open_data(tmp_path / "labels.mat").names.feature_names is None


def test_wavelengths_in_a_mat_file_of_version_7_3(tmp_path):
    with h5py.File(tmp_path / "scene.mat", "w", userblock_size=512) as file:
        file["cube"] = np.ones((6, 5, 4))  # as MATLAB writes 4 x 5 x 6
        file["wavelength"] = np.linspace(400, 900, 6)[:, None]
    V = open_data(tmp_path / "scene.mat")
    assert (V.shape, V.names.feature_names) == ((6, 20), ("400", "500", "600", "700", "800", "900"))


def test_the_command_line_advises_to_unmix_a_scene(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pixels, spectra, _ = draw_scene(3)
    whole = np.rint(10_000 * np.maximum(pixels, 0))  # reflectance in a common unit, not counts
    np.save("scene.npy", whole.reshape(40, 40, 60))
    command = ["fit", "scene.npy", "-k", "3", "--no-report", "-q"]
    assert main([*command, "-o", "plain", "--max-iter", "5"]) == 0
    assert "use --scene" in capsys.readouterr().out
    assert main([*command, "-o", "unmixed", "--scene", "--json"]) == 0
    output = capsys.readouterr().out
    assert json.loads(output)["init_used"] == "simplex"
    assert "use --scene" not in output
    assert "counts" not in output
    components, shares = (
        pd.read_csv(f"unmixed/{name}.csv", index_col=0) for name in ("components", "coefficients")
    )
    assert match_spectra(spectra, components.T).angles.max() < 1.5
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)


def test_sum_to_one_says_that_it_does_not_determine_the_spectra():
    X = np.random.default_rng(0).dirichlet(np.ones(3), 60) @ np.random.default_rng(1).random(
        (3, 12)
    )
    with pytest.warns(InputWarning, match="does not determine the components.*for_scenes") as said:
        ConeNMF(3, sum_to_one=True, max_iter=5, tol=0).fit(X)
    assert len(said) == 1
    ConeNMF(3, sum_to_one=True, min_volume=1e-5, max_iter=5, tol=0).fit(X)  # no warning


def test_a_known_spectrum_of_zeros_is_refused():
    pixels, spectra, _ = draw_scene(3, purest=1.0)
    with pytest.raises(DataError, match="the fixed components cannot be told apart"):
        ConeNMF.for_scenes(3, fixed=[np.zeros_like(spectra[0])]).fit(pixels)


def test_dark_materials_count_as_much_as_bright_ones(rng):
    """The error of corners is the mean of the relative errors of pixels."""
    corners, X = rng.random((6, 2)), rng.random((6, 30)) * np.geomspace(1, 1e3, 30)
    H, error = _mixtures(X, corners)
    units = corners / np.linalg.norm(corners, axis=0)
    expected = [nnls(units, one) for one in X.T]  # and the norms of residuals
    np.testing.assert_allclose(H, [coefficients for coefficients, _ in expected], rtol=1e-7)
    shares = [left**2 / (one @ one) for (_, left), one in zip(expected, X.T, strict=True)]
    assert error == pytest.approx(np.mean(shares), rel=1e-9)


def test_abundances_of_a_reference_are_read_in_both_orders_of_pixels(tmp_path, rng):
    spectra, cube = rng.random((3, 9)), rng.random((4, 5, 3))
    np.savez(tmp_path / "truth.npz", M=spectra, A=cube, other=rng.random((7, 7)))
    request = SimpleNamespace(reference=str(tmp_path / "truth.npz"), max_memory=None)
    found, abundances = read_scene_reference(request, from_rows(rng.random((20, 9))))
    np.testing.assert_array_equal(found, spectra)
    by_rows, by_columns = abundances
    np.testing.assert_array_equal(by_rows, cube.reshape(20, 3))
    np.testing.assert_array_equal(by_columns, cube.transpose(1, 0, 2).reshape(20, 3))
