"""All kinds of cases."""

from __future__ import annotations

from . import calls, identity, interrupts, kills, numbers, options, pairs, selftest, squares
from .cases import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *numbers.KINDS,
        *squares.KINDS,
        *pairs.KINDS,
        *options.KINDS,
        *calls.KINDS,
        *identity.KINDS,
        *kills.KINDS,
        *interrupts.KINDS,
        *selftest.KINDS,
    )
}
GROUPS = tuple(dict.fromkeys(kind.group for kind in KINDS.values() if kind.group != "selftest"))


def chosen(names: tuple[str, ...]) -> list[Kind]:
    """The kinds with these names, or in these groups; "all" is all of them."""
    if not names or "all" in names:
        names = GROUPS
    unknown = set(names) - set(GROUPS) - set(KINDS)
    if unknown:
        known = ", ".join((*GROUPS, *KINDS))
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; known are all, {known}")
    return [kind for kind in KINDS.values() if kind.name in names or kind.group in names]
