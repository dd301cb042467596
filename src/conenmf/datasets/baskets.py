"""A small table to try things on: what customers of a shop bought.

It is drawn, not observed: each customer mixes a few of four habits, and buys the products of each
with its own rate. Python's own generator draws the numbers, which are the same in every version.
"""

from __future__ import annotations

import math
import random

_HABITS = {
    "baking": {"flour": 6, "sugar": 4, "butter": 4, "eggs": 5, "milk": 3, "yeast": 2},
    "salads": {"lettuce": 5, "tomatoes": 6, "cucumber": 4, "olives": 2, "vinegar": 1, "oil": 2},
    "barbecue": {"sausages": 6, "charcoal": 3, "mustard": 2, "bread": 4, "beer": 6, "tomatoes": 1},
    "breakfast": {"cereal": 5, "milk": 5, "coffee": 6, "jam": 3, "bread": 4, "eggs": 2},
}
_COUNT = 300
_SEED = 4
_STRAY_RATE = 0.05  # of any product
_MAIN_SHARE = 0.85  # of a customer's first habit; the rest is that of a second one


def draw_baskets() -> tuple[list[list[int]], list[str], list[str]]:
    """Return how often each customer bought each product, their names, those of the products.

    >>> counts, customers, products = draw_baskets()
    >>> len(customers), len(products), sum(map(sum, counts))
    (300, 20, 6911)
    """
    rng = random.Random(_SEED)
    products = sorted({product for rates in _HABITS.values() for product in rates})
    habits = list(_HABITS.values())
    counts = []
    for _ in range(_COUNT):
        first, second = rng.sample(habits, 2)
        size = 0.5 + rng.random()
        rates = [
            size * (_MAIN_SHARE * first.get(one, 0) + (1 - _MAIN_SHARE) * second.get(one, 0))
            for one in products
        ]
        counts.append([_poisson(rng, rate + _STRAY_RATE) for rate in rates])
    return counts, [f"customer {n}" for n in range(1, _COUNT + 1)], products


def _poisson(rng: random.Random, rate: float) -> int:
    """Count the events of unit time by the gaps between them, which are exponential."""
    count, time = 0, -math.log(1.0 - rng.random())
    while time < rate:
        count += 1
        time -= math.log(1.0 - rng.random())
    return count
