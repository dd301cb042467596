"""What peers.py leaves behind: a Markdown table, all raw numbers as JSON, and a picture."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import contenders

from conenmf.atomic import written_whole


def best_of_scikit_learn(race: dict[str, Any], iterations: int) -> str | None:
    """Scikit-learn's configuration with the lowest error after so many iterations."""
    errors = {
        name: runs[str(iterations)]["error"]
        for name, runs in race["peers"].items()
        if contenders.PEERS[name].package == "sklearn" and str(iterations) in runs
    }
    return min(errors, key=errors.__getitem__) if errors else None


def _number(value: float | None, digits: int = 2) -> str:
    return "not reached" if value is None else f"{value:.{digits}f}"


def _ratio(theirs: float, ours: float | None) -> str:
    return "-" if ours is None else f"{theirs / ours:.2f}"


def headline(races: dict[str, Any]) -> list[str]:
    """One line per set: scikit-learn's best against our time to its error."""
    first = next(iter(contenders.OURS))
    lines = [
        f"| set | samples x features, K | iterations | scikit-learn's best | its error | its s "
        f"| {first} to that error, s | ratio | default fit, s | its error | plain solver |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, race in races.items():
        default = race["default"]
        for iterations in race["iterations"]:
            best = best_of_scikit_learn(race, iterations)
            if best is None:
                continue
            peer = race["peers"][best][str(iterations)]
            ours = peer["ours"][first]
            lines.append(
                f"| {name} | {race['N']} x {race['F']}, {race['K']} | {iterations} | {best} "
                f"| {peer['error']:.6f} | {peer['seconds']:.2f} | {_number(ours)} "
                f"| {_ratio(peer['seconds'], ours)} "
                f"| {default['seconds']:.2f} | {default['error']:.6f} "
                f"| {min(default['plain_errors']):.6f} |"
            )
    return lines


def details(name: str, race: dict[str, Any]) -> list[str]:
    """All peers on one set, and our time to the error of each."""
    ours = list(race["ours"])
    lines = [
        f"## {name}: {race['N']} x {race['F']}, K = {race['K']}, {race['dtype']}",
        "",
        "| peer | iterations | relative error | s |"
        + "".join(f" {one}, s | ratio |" for one in ours),
        "|---|---|---|---|" + "---|---|" * len(ours),
    ]
    for peer, runs in race["peers"].items():
        for iterations, run in runs.items():
            times = [run["ours"][one] for one in ours]
            lines.append(
                f"| {peer} | {iterations} | {run['error']:.6f} | {run['seconds']:.3f} |"
                + "".join(f" {_number(t, 3)} | {_ratio(run['seconds'], t)} |" for t in times)
            )
    lines.append("")
    for one, result in race["ours"].items():
        last = result["descents"][-1]
        finish = statistics.median(descent["finish"] for descent in result["descents"])
        lines.append(
            f"- {one}: init {last['init']}, {len(last['errors'])} iterations to "
            f"{last['errors'][-1]:.6f} ({last['stop_reason']}); of every time, {finish:.3f} s are "
            "for the exact coefficients that end a fit."
        )
    if race["memory"]:
        limit = race["memory_limit"] / 1e6
        lines += [
            "",
            f"Peak memory beyond the data ({race['bytes'] / 1e6:.1f} MB; factors "
            f"{race['factors'] / 1e6:.1f} MB):",
            "",
            "| | peak - V, MB |",
            "|---|---|",
        ]
        for one, peak in race["memory"].items():
            beyond = (peak - race["bytes"]) / 1e6
            note = ""
            if one in contenders.OURS:
                note = f" (limit {limit:.1f}: {'kept' if beyond <= limit else 'EXCEEDED'})"
            lines.append(f"| {one} | {beyond:.1f}{note} |")
    return [*lines, ""]


def aspect_lines(aspects: dict[str, Any]) -> list[str]:
    return [f"- {aspect['summary']}" for aspect in aspects.values() if aspect["summary"]]


def markdown(report: dict[str, Any]) -> str:
    machine = report["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    lines = [
        "# Against peers",
        "",
        f"{machine['cores']} cores, {machine['processor']}, {machine['system']}; {packages}; "
        f"seed {report['seed']}, rounds in turn: {report['rounds']}, medians."
        + (" Tiny data: these numbers mean nothing." if report["quick"] else ""),
        "",
        "Ratio: seconds of the peer over our seconds to the error that it ended with; checks of "
        "the data, init and finish are included on both sides. The last column is the error of "
        "the plain solver (`plain-hals`) from the same init, stopped after the seconds of the "
        "default fit.",
        "",
        *headline(report["races"]),
        "",
    ]
    for name, race in report["races"].items():
        lines += details(name, race)
    if report["aspects"]:
        lines += ["## Besides", "", *aspect_lines(report["aspects"])]
    return "\n".join(lines)


def plain(value: Any) -> Any:
    """Infinities as None, tuples as lists: what JSON can hold."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def picture(races: dict[str, Any], stream: Any) -> None:
    """Error against time, a panel for each set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = min(len(races), 2)
    rows = -(-len(races) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(7 * columns, 4.5 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(races) :]:
        axis.remove()
    for axis, (name, race) in zip(axes.flat, races.items(), strict=False):
        for peer, runs in race["peers"].items():
            number = list(contenders.PEERS).index(peer)  # the same colour in every panel
            axis.plot(
                [run["seconds"] for run in runs.values()],
                [run["error"] for run in runs.values()],
                "os^v"[number % 4] + "--",
                color=f"C{number}",
                label=peer,
                markersize=5,
                linewidth=1,
            )
        for style, (one, result) in zip(("-", "-.", ":"), race["ours"].items(), strict=False):
            shown = result["descents"][result["median_round"]]
            axis.plot(shown["seconds"], shown["errors"], "k" + style, label=one, linewidth=2)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="seconds",
            ylabel="relative error",
            title=f"{name}: {race['N']} x {race['F']}, K = {race['K']}",
        )
    fullest = max(range(len(races)), key=lambda i: len(list(races.values())[i]["peers"]))
    axes.flat[fullest].legend(fontsize="small")
    figure.savefig(stream, dpi=120, format="png")
    plt.close(figure)


def write(report: dict[str, Any], folder: Path) -> None:
    report = plain(report)
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(folder / "peers.json") as stream:
        stream.write(f"{json.dumps(report, indent=1, allow_nan=False)}\n".encode())
    with written_whole(folder / "peers.md") as stream:
        stream.write(f"{markdown(report)}\n".encode())
    if report["races"]:
        with written_whole(folder / "peers.png") as stream:
            picture(report["races"], stream)
