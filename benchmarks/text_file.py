"""A large CSV within a memory budget: peak memory over the budget, to open it and to fit it.

Prints ratios of the peak memory to ``max_memory``, the memory that the process may use: they should
be at most 1. The text is drawn and deleted again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from measure import output_of

FEATURES, COMPONENTS, AT_A_TIME = 500, 10, 20_000


def write_csv(path: Path, size: float) -> int:
    """Write about so many bytes of mixtures of parts, with names; return the number of samples."""
    import pyarrow as pa
    from pyarrow import csv

    rng = np.random.default_rng(0)
    parts = rng.random((COMPONENTS, FEATURES))
    samples = 0
    with open(path, "wb") as stream:
        while stream.tell() < size:
            numbers = np.round(rng.random((AT_A_TIME, COMPONENTS)) ** 4 @ parts, 4)
            columns = {f"gene {f}": numbers[:, f] for f in range(FEATURES)}
            names = [f"cell {samples + n}" for n in range(AT_A_TIME)]
            header = csv.WriteOptions(include_header=samples == 0)
            csv.write_csv(pa.table({"cell": names, **columns}), stream, header)
            samples += AT_A_TIME
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--max-memory", type=float, default=500e6, help="bytes")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.csv"
        samples = write_csv(path, given.gigabytes * 1e9)
        size = path.stat().st_size
        found = json.loads(
            output_of(f"""
import json, time
from conenmf import factorize, open_data
def peak():  # what resource reports would include the process that started this one
    lines = open("/proc/self/status")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
before, began = peak(), time.perf_counter()
V = open_data({str(path)!r}, max_memory={int(given.max_memory)})
opened, seconds = peak(), time.perf_counter() - began
factorize(V, {COMPONENTS}, init='cr1', max_iter=5, tol=0)
print(json.dumps([before, opened, seconds, peak()]))
""")
        )
    before, opened, seconds, fitted = found
    print(
        f"CSV of {size / 1e9:.2f} GB, {samples} x {FEATURES}, budget {given.max_memory:.3g} bytes"
    )
    print(f"interpreter and libraries / budget  {before / given.max_memory:.2f}")
    print(f"peak while opening / budget         {opened / given.max_memory:.2f}  ({seconds:.1f} s)")
    print(f"peak while fitting / budget         {fitted / given.max_memory:.2f}")
    print(f"peak while opening / size of file   {opened / size:.3f}")


if __name__ == "__main__":
    main()
