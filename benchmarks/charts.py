"""Draw the charts of docs/benchmarks from the stored results: python benchmarks/charts.py

Nothing is measured here. Each chart names the file of its figures; the script in the page's table measured them.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
OURS, OTHERS = "#2a6f97", ["#adb5bd", "#8d99ae", "#6c757d", "#ced4da"]


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def speeds(axes: Axes, name: str, title: str) -> None:
    """Sentences a second of each program, for each way to search."""
    cells = read(name)["cells"]
    programs = ["regard", "hugging face", "ctranslate2 float32", "ctranslate2 int8"]
    colours = [OURS, OTHERS[0], OTHERS[2], OTHERS[1]]
    for number, (program, colour) in enumerate(zip(programs, colours, strict=True)):
        places = [place + 0.2 * (number - 1.5) for place in range(len(cells))]
        heights = [cell[program]["sentences_per_second"] for cell in cells.values()]
        axes.bar(places, heights, 0.2, color=colour, label=program)
    axes.set_xticks(range(len(cells)), [cell.replace("-", ", batch ") for cell in cells])
    axes.set(yscale="log", ylabel="sentences a second, one thread", title=title)
    axes.legend(fontsize="small")


def draw_search() -> None:
    _, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained")
    speeds(left, "search-avx2", "AMD EPYC 7003, AVX2")
    speeds(right, "search", "AMD EPYC (Zen 5), AVX-512")
    save("search")


def draw_training() -> None:
    _, axes = plt.subplots(figsize=(7, 2.4), layout="constrained")
    steps = read("peers_training")["training steps"]
    rates = [row["target tokens a second"] for row in steps.values()]
    axes.barh(list(steps), rates, color=[OURS, *OTHERS[:3]])
    axes.invert_yaxis()
    axes.set(xlabel="target tokens a second, one thread, float32")
    save("training")


def draw_memory() -> None:
    _, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    labels = {"cpu": "regard, kernel `cpu`", "eager": "PyTorch, eager"}
    for kernel, rows in read("additive")["growth"].items():
        colour = OURS if kernel == "cpu" else OTHERS[2]
        megabytes = [row["megabytes"] for row in rows.values()]
        axes.plot(
            [int(length) for length in rows], megabytes, "o-", color=colour, label=labels[kernel]
        )
    axes.set(xscale="log", yscale="log", xlabel="queries and keys", ylabel="MB of memory")
    axes.set_title("Additive attention: memory of a step")
    axes.legend()
    save("memory")


def draw_watch() -> None:
    _, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
    context = read("watch")["context"]
    bars = {
        "kept by a watch": context["kept_megabytes"],
        "all weights": context["weights_would_be_megabytes"],
    }
    axes.barh(list(bars), list(bars.values()), color=[OURS, OTHERS[2]])
    axes.invert_yaxis()
    axes.set(xlabel=f"MB, for a text of {context['length']:,} tokens")
    save("watch")


def save(name: str) -> None:
    plt.savefig(IMAGES / f"benchmark-{name}.svg", metadata={"Date": None})
    plt.close()


CHARTS: list[Callable[[], None]] = [draw_search, draw_training, draw_memory, draw_watch]

if __name__ == "__main__":
    mpl.rcParams.update(
        {"svg.hashsalt": "regard", "axes.spines.top": False, "axes.spines.right": False}
    )
    for draw in CHARTS:
        draw()
