"""
Data frames
===========

``ConeNMF`` reads data frames of pandas and polars; with ``set_output`` it returns them, with names.
The names of the columns are kept in the result and shown in its plots.
"""

# %%
# A table of foods
# ----------------
#
# The table contains approximate grams in 100 g.

import matplotlib.pyplot as plt
import pandas as pd
import polars as pl

from conenmf import ConeNMF

foods = pd.DataFrame(
    {
        "protein": [13, 31, 26, 20, 25, 9, 7, 3, 1, 0, 1, 1, 9, 21, 15],
        "fat": [11, 4, 15, 13, 33, 4, 1, 1, 0, 0, 0, 0, 1, 50, 65],
        "carbohydrate": [1, 0, 0, 0, 1, 20, 75, 80, 20, 14, 9, 4, 49, 22, 14],
        "fibre": [0, 0, 0, 0, 0, 7, 3, 1, 3, 2, 3, 2, 7, 12, 7],
        "sugar": [1, 0, 0, 0, 0, 1, 2, 0, 14, 10, 5, 3, 4, 4, 4],
        "water": [75, 65, 58, 67, 37, 67, 10, 12, 76, 84, 88, 93, 38, 4, 4],
    },
    index=[
        *("egg", "chicken", "beef", "salmon", "cheese", "lentils", "pasta, dry", "rice, dry"),
        *("banana", "apple", "carrot", "tomato", "bread", "almonds", "walnuts"),
    ],
).astype(float)

# %%
# pandas in, pandas out
# ---------------------
#
# The index is kept, so the coefficients can be joined to the table.

model = ConeNMF(n_components=4).set_output(transform="pandas")
coefficients = model.fit_transform(foods)
coefficients.round(2)

# %%
# ``get_feature_names_out`` names the new columns, ``feature_names_in_`` are the old ones, and the
# result knows both:

print(list(model.get_feature_names_out()), list(model.feature_names_in_))
_, axes = plt.subplots(1, 4, figsize=(11, 2.6), layout="constrained")
model.result_.plot_components(axes)
plt.show()

# %%
# The main component of each food:

for k, members in foods.groupby(model.labels_):
    print(k, ", ".join(members.index))

# %%
# polars
# ------

table = pl.from_pandas(foods)
ConeNMF(n_components=4).set_output(transform="polars").fit_transform(table)
