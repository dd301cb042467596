"""Scikit-learn's own checks of an estimator, for every loss and option with its default init."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from conenmf import ConeNMF

MODELS = {
    "default": ConeNMF(),
    "one of random": ConeNMF(1, solver="nnlsb", init="random", random_state=0),
    "two": ConeNMF(2),
    "random": ConeNMF(2, init="random", random_state=0),
    "mult": ConeNMF(2, solver="mult"),
    "plain-hals": ConeNMF(2, solver="plain-hals"),
    "no solver": ConeNMF(2, solver=None),
    "poisson": ConeNMF(2, loss="poisson"),
    "poisson, auto": ConeNMF(loss="poisson"),
    "poisson, mult": ConeNMF(2, loss="poisson", solver="mult"),
    "poisson, L1": ConeNMF(2, loss="poisson", alpha_W=1e-3, l1_ratio=1.0),
    "itakura-saito": ConeNMF(2, loss="itakura-saito"),
    "L2": ConeNMF(2, alpha_W=1e-3),
    "L1": ConeNMF(2, alpha_W=1e-3, l1_ratio=1.0),
    "one factor": ConeNMF(2, alpha_W=1e-3, alpha_H=0.0),
    "orthogonality": ConeNMF(2, orthogonality=0.1),
    "min_volume": ConeNMF(2, min_volume=0.01),
    "min_volume, auto": ConeNMF(2, min_volume="auto"),
    "sum_to_one": ConeNMF(2, sum_to_one=True, min_volume="auto"),
    "scenes": ConeNMF.for_scenes(2),
    "missing='nan'": ConeNMF(2, missing="nan"),
    "missing='zeros'": ConeNMF(2, missing="zeros"),
    "missing=-999": ConeNMF(2, missing=-999),
    "negative='keep'": ConeNMF(2, negative="keep"),
    "negative='clip'": ConeNMF(2, negative="clip"),
}

# Those that fit data of usual size several times; for most models they run at night.
_LONG = {
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimators_dtypes",
    "check_estimators_nan_inf",
    "check_estimators_pickle",
    "check_pipeline_consistency",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_transformer_preserve_dtypes",
}
_COMPLETE = ("default", "two", "poisson", "itakura-saito")  # every day

_REPEATED_ROWS = "with `sample_weight` is not equivalent"  # a random start draws for each row
_ZEROS = "some are zero|is of type pandas.Series|1 sample|1 feature"  # their divergence is infinite
_WITH_ZEROS = (
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_sparse_data",  # by scikit-learn 1.6, whatever the tags say
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_pandas_series",
    "check_transformer_data_not_an_array",
    "check_transformer_general",
    "check_transformer_n_iter",
    "check_transformer_preserve_dtypes",
)
# Checks that are expected to fail, and what their errors say.
EXPECTED = {("itakura-saito", check): _ZEROS for check in _WITH_ZEROS} | {
    ("random", "check_sample_weight_equivalence_on_dense_data"): _REPEATED_ROWS,
    ("random", "check_sample_weight_equivalence_on_sparse_data"): _REPEATED_ROWS,
}


def cases():
    """Yield all checks of all models; long ones are `nightly` for most models."""
    for name, model in MODELS.items():
        for estimator, check in estimator_checks_generator(model):
            check_name = check.func.__name__
            is_long = check_name in _LONG and name not in _COMPLETE
            how = "".join(f", {value}" for value in check.keywords.values())
            mark = [pytest.mark.nightly] * is_long
            yield pytest.param(
                estimator, check, (name, check_name), marks=mark, id=f"{name}: {check_name}{how}"
            )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::conenmf.errors.InputWarning")
@pytest.mark.parametrize(("estimator", "check", "names"), [*cases()])
def test_scikit_learns_own_checks(estimator, check, names):
    reason = EXPECTED.get(names)
    if reason is None:
        check(estimator)
    else:
        with pytest.raises((AssertionError, ValueError), match=reason):
            check(estimator)
