import numpy as np

from conenmf import ConeNMF
from conenmf.datasets.baskets import draw_baskets


def test_the_table_is_always_the_same_and_shows_four_habits():
    first, again = draw_baskets(), draw_baskets()
    assert first == again
    counts, customers, products = np.array(first[0]), *first[1:]
    assert counts.shape == (len(customers), len(products)) == (300, 20)
    model = ConeNMF().fit(counts, feature_names=products)
    habits = {frozenset(features[:2]) for features in model.top_features(2)}
    assert habits == {
        frozenset({"coffee", "cereal"}),
        frozenset({"tomatoes", "lettuce"}),
        frozenset({"sausages", "beer"}),
        frozenset({"flour", "eggs"}),
    }
