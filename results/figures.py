"""The paper's figures in small, from the runs that results/run_table.py has kept (it calls this; nothing runs here).

    python results/run_table.py --summary

Figure 3 (success and episode length over the updates), 4 (fractions of the training data), 5 (unseen games by task type), 9
(distillation loss and gate). Lines are means over the seeds, bands or bars from the lowest to the highest seed.
"""
from experiment import ROOT, UNSEEN, end, over_seeds

COLOURS = {"grpo": "tab:gray", "seed": "tab:blue", "sdar": "tab:orange", "seed-expert": "tab:green"}
SHORT = {"pick_and_place_simple": "pick", "look_at_obj_in_light": "look", "pick_clean_then_place_in_recep": "clean",
         "pick_heat_then_place_in_recep": "heat", "pick_cool_then_place_in_recep": "cool", "pick_two_obj_and_place": "pick two"}


def draw_all(records: dict) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    drawings = {"figure3": (dynamics, 3), "figure4": (fractions, 1), "figure5": (by_type, 1), "figure9": (distillation, 3)}
    for name, (draw, columns) in drawings.items():
        figure, axes = plt.subplots(1, columns, figsize=(5 * columns + 1, 4), constrained_layout=True, squeeze=False)
        draw(axes[0], records)
        for axis in axes[0]:
            if axis.get_legend_handles_labels()[0]:
                axis.legend(fontsize=8)
        figure.savefig(ROOT / "results" / f"{name}.png", dpi=90)
        plt.close(figure)


def band(axis, curves: list[list], name: str, smooth: int = 0) -> None:
    """Mean over the seeds and the range between them, each curve averaged over `smooth` updates on both sides."""
    mean = lambda xs: sum(xs) / len(xs)
    curves = [[mean(c[max(0, i - smooth):i + smooth + 1]) for i in range(len(c))] for c in curves if None not in c]
    if curves:
        x = range(1, len(curves[0]) + 1)
        axis.plot(x, [mean(at) for at in zip(*curves)], label=f"{name} ({len(curves)} seeds)", color=COLOURS.get(name))
        axis.fill_between(x, list(map(min, zip(*curves))), list(map(max, zip(*curves))), alpha=0.15, color=COLOURS.get(name))


def dynamics(axes, records):
    for name in ("grpo", "seed", "sdar"):
        for axis, metric in zip(axes, ("success", "turns", "entropy")):
            band(axis, [r["metrics"][metric] for r in records.get(name, [])], name, smooth=2)
    for axis, title in zip(axes, ("success in training (5-update mean)", "turns an episode", "entropy, nats a token")):
        axis.set(title=title, xlabel="update")


def fractions(axes, records):
    for name in ("grpo", "seed"):
        points = [(share, [100 * end(r, UNSEEN)["success"] for r in records.get(key, [])])
                  for share, key in [*((s, f"{name} {s}% of the data") for s in (20, 40, 60, 80)), (100, name)]]
        points = [(share, values) for share, values in points if values]
        if points:
            means = [sum(v) / len(v) for _, v in points]
            axes[0].errorbar([s + (name == "seed") for s, _ in points], means, fmt="o-", capsize=3, color=COLOURS[name], label=name,
                             yerr=[[m - min(v) for m, (_, v) in zip(means, points)], [max(v) - m for m, (_, v) in zip(means, points)]])
    axes[0].set(title="unseen games, lowest to highest seed", xlabel="% of the training tasks", ylabel="success, %")


def by_type(axes, records):
    names = [name for name in ("grpo", "seed", "sdar") if name in records]
    for k, name in enumerate(names):
        ends = [end(r, UNSEEN)["by_type"] for r in records[name]]
        values = [over_seeds([100 * e[kind]["success"] for e in ends])["values"] for kind in SHORT]
        means = [sum(v) / len(v) for v in values]
        axes[0].bar([i + 0.27 * k for i in range(len(SHORT))], means, width=0.25, color=COLOURS[name], label=name, capsize=3,
                    yerr=[[m - min(v) for m, v in zip(means, values)], [max(v) - m for m, v in zip(means, values)]])
    axes[0].set(title="unseen games by type, lowest to highest seed", ylabel="success, %", xticks=range(len(SHORT)), xticklabels=SHORT.values())


def distillation(axes, records):
    for name in ("seed", "sdar", "seed-expert"):
        for axis, metric in zip(axes, ("opd_loss", "gate_mean", "delta_abs")):
            band(axis, [r["metrics"][metric] for r in records.get(name, []) if metric in r["metrics"]], name)
    for axis, title in zip(axes, ("OPD loss", "mean gate", "|Delta|, nats")):
        axis.set(title=title, xlabel="update")
