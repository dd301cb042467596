"""All kinds of cases."""

from __future__ import annotations

from . import kills, numbers, options, pairs, squares
from .cases import Attack

KINDS: dict[str, Attack] = {
    "fits": numbers.attack,
    "nnls": squares.attack,
    "pairs": pairs.attack,
    "options": options.attack,
    "checkpoint-kills": kills.attack_checkpoint,
    "command-kills": kills.attack_command,
}
