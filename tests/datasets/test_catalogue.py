"""Every description in the catalogue is complete."""

import numpy as np
import pytest

from conenmf.datasets import DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_says_where_it_comes_from(name):
    description = DATASETS[name]
    assert description.name == name
    assert "http" in description.source
    assert description.licence
    assert description.preprocessing
    assert description.sha256 is None or len(description.sha256) == 64
    if description.kind == "images":
        assert np.prod(description.image_shape) == description.shape[1]
    if description.kind == "scene":
        assert np.prod(description.image_shape) == description.shape[0]
        assert len(description.variables) == len(description.downloads)
    assert description.download_sha256 is None or len(description.downloads) == 1
    for url in description.downloads:
        is_checked = description.download_sha256 or (description.sha256 and description.exact)
        assert url.startswith("https://") or is_checked
