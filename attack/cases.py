"""What a case is, how it ends, and which endings are failures."""

from __future__ import annotations

import signal
import tempfile
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conenmf import ConeNMFError

SECONDS = 300  # by the clock, after which a case hangs
# Other cases end as "accepted" (computed, and right as far as it can be checked), "refused" (an
# error with a name) or "recovered" (disturbed, and then the same bits as without).
FAILURES = {
    "hang": "no end within the time limit",
    "unnamed": "an error that is not one of conenmf.errors",
    "different": "other numbers than those of the reference or of the undisturbed run",
    "factors": "NaN, infinite or negative factors, or an invariant does not hold",
    "silent": "what must be refused was accepted",
    "leftover": "files were left behind",
    "broken": "the attack itself failed",
}


@dataclass(frozen=True)
class Ending:
    """How one case ended."""

    outcome: str
    note: str = ""
    compared: bool = False  # with an independent method or an undisturbed run

    @property
    def failed(self) -> bool:
        """Whether the library broke a guarantee."""
        return self.outcome in FAILURES


@dataclass
class Case:
    """One case: its random generator and an empty folder."""

    kind: str
    seed: int
    number: int
    folder: Path
    rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([zlib.crc32(self.kind.encode()), self.seed, self.number])

    def pick(self, choices: Any) -> Any:
        """Draw one of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        """Draw yes or no."""
        return bool(self.rng.random() < probability)


Attack = Callable[[Case], Ending]


def judged(problem: BaseException) -> Ending:
    """The ending for an error: refused if it is one of the library's own."""
    place = traceback.extract_tb(problem.__traceback__)[-1]
    text = f"{type(problem).__name__}: {problem} ({Path(place.filename).name}:{place.lineno})"
    outcome = "refused" if isinstance(problem, ConeNMFError) else "unnamed"
    return Ending(outcome, " ".join(text.split())[:300])


def run_case(attack: Attack, kind: str, seed: int, number: int) -> Ending:
    """Run a case in a folder of its own."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    handler = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        with tempfile.TemporaryDirectory(prefix="conenmf-attack-") as folder:
            return attack(Case(kind, seed, number, Path(folder)))
    except TimeoutError as problem:
        return Ending("hang", judged(problem).note)
    except Exception as problem:
        return Ending("broken", judged(problem).note)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
