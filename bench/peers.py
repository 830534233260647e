#!/usr/bin/env python3
"""Times PyTorch's FlexAttention and scaled_dot_product_attention (SDPA) on the CPU in turn with flymask, in one run, and draws
GFLOP/s and the ratio to the measured peak by length.

    python3 -m venv venv && venv/bin/pip install torch==2.13.0 numpy matplotlib
    venv/bin/python bench/peers.py [--lengths 2048,8192] [--threads 1] [--dtypes f32,bf16] [-o build/peers] [--plot F]
    venv/bin/python bench/peers.py --maps [--lengths 131072]     # block maps instead of attention; needs no matplotlib

Without PyTorch it says so and ends with 0. GFLOP/s count 4 D flops (forward) for each visible pair, whatever a program
computes beside them; the peak is the one that `flymask bench` measures in the same run. Writes DIR/peers.json
(maps.json) and the plot."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

HEADS, DIM, WINDOW = 4, 64, 256
COLOURS = {"flymask": "#1b6ca8", "FlexAttention": "#d1495b", "SDPA": "#edae49"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", help="default: 2048,4096,8192; of maps: 131072")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtypes", default="f32", help="f32, bf16 or both, with a comma")
    parser.add_argument("--flymask", default="build/flymask", help="the command to time")
    parser.add_argument("--maps", action="store_true", help="time block maps alone (create_block_mask takes n^2 work)")
    parser.add_argument("-o", default="build/peers", metavar="DIR")
    parser.add_argument("--plot", metavar="F", help="where the plot goes (default: DIR/peers.png)")
    args = parser.parse_args()
    lengths = args.lengths or ("131072" if args.maps else "2048,4096,8192")
    args.lengths = [int(n) for n in lengths.split(",")]
    args.dtypes = args.dtypes.split(",")
    return args


def median_ms(call, least=5, seconds=1.0, clock=time.perf_counter):
    call()
    times, end = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < end and len(times) < 50:
        start = clock()
        call()
        times.append(clock() - start)
    return sorted(times)[len(times) // 2] * 1e3


def document_ids(n):
    """Documents of uneven lengths, the same every time: 100, 700, 300, 1500, ..."""
    ids, lengths, d = [], [100, 700, 300, 1500, 50, 1000], 0
    while len(ids) < n:
        ids += [d] * lengths[d % len(lengths)]
        d += 1
    return ids[:n]


def cases(n, scratch):
    """name -> (flymask's arguments, the peers' mask_mod or None, whether SDPA's is_causal is the same mask)."""
    import numpy
    import torch

    doc = document_ids(n)
    path = os.path.join(scratch, f"doc{n}.npy")
    numpy.save(path, numpy.array(doc, dtype=numpy.int32))
    ids = torch.tensor(doc)
    return {
        "causal": (["causal"], lambda b, h, q, k: q >= k, True),
        f"window {WINDOW}": (
            ["sliding_window", f"left={WINDOW - 1}", "right=0"],
            lambda b, h, q, k: (q >= k) & (q - k < WINDOW),
            False,
        ),
        "documents": (["document", f"doc={path}"], lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k), False),
        # Gathering rows first is a separate pass for a peer: only ours is timed.
        "SA": (["stochastic", f"left={WINDOW // 2}", f"right={WINDOW // 2}", "--rows", "random:1"], None, False),
    }


def run_flymask(args, mask, n, dtype):
    command = [args.flymask, "bench", *mask, "--lengths", f"{n},{n}", "--heads", f"{HEADS},{HEADS}", "--head-dim", str(DIM)]
    command += ["--dtype", dtype, "--threads", str(args.threads), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def run_peers(mask_mod, is_causal, n, dtype):
    """(name, milliseconds) of each peer; cold compilations are not counted."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # or it would stop compiling after a few masks
    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    q, k, v = (torch.randn(1, HEADS, n, DIM, dtype=kind) for _ in range(3))
    with torch.no_grad():
        if mask_mod:
            block_mask = torch.compile(create_block_mask)(mask_mod, None, None, n, n, device="cpu")
            flex = torch.compile(flex_attention, dynamic=False)
            yield "FlexAttention", median_ms(lambda: flex(q, k, v, block_mask=block_mask))
        if is_causal:
            sdpa = torch.nn.functional.scaled_dot_product_attention
            yield "SDPA", median_ms(lambda: sdpa(q, k, v, is_causal=True))


def time_maps(args):
    """On one thread by its processor time, so that other work on the machine does not count."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    compiled, rows = torch.compile(create_block_mask), []
    for n in args.lengths:
        mask_mod = lambda b, h, q, k: (q >= k) & (q - k < WINDOW)  # noqa: E731
        clock = time.process_time if args.threads == 1 else time.perf_counter
        theirs = median_ms(lambda: compiled(mask_mod, None, None, n, n, device="cpu"), least=3, clock=clock)
        command = [args.flymask, "map", "sliding_window", f"left={WINDOW - 1}", "right=0", "--lengths", f"{n},{n}", "--json",
                   "--threads", str(args.threads)]
        ours = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["map_ms"]
        rows.append({"case": "map", "n": n, "create_block_mask_ms": theirs, "flymask_ms": ours})
        print(f"map of window {WINDOW}, n = {n:7d}: create_block_mask (compiled) {theirs:10.2f} ms, flymask {ours:8.3f} ms, "
              f"{theirs / ours:.0f} times")
    return rows


def draw(rows, path):
    """A row of panels for each type, a panel for each mask: GFLOP/s by length, the measured peak dashed, its share on the right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names, dtypes = (list(dict.fromkeys(r[key] for r in rows)) for key in ("case", "dtype"))
    figure, axes = pyplot.subplots(len(dtypes), len(names), figsize=(4 * len(names), 3.4 * len(dtypes)), squeeze=False)
    for i, dtype in enumerate(dtypes):
        peak = sorted(r["peak"] for r in rows if r["dtype"] == dtype)
        peak = peak[len(peak) // 2]
        kind = next(r["peak_kind"] for r in rows if r["dtype"] == dtype)
        for axis, case in zip(axes[i], names):
            for who, colour in COLOURS.items():
                points = [(r["n"], r["gflops"]) for r in rows if (r["case"], r["dtype"], r["who"]) == (case, dtype, who)]
                if points:
                    axis.plot(*zip(*points), marker="o", label=who, color=colour)
            axis.axhline(peak, linestyle="--", color="grey", linewidth=1, label=f"peak ({kind})")
            axis.set_title(f"{case}, {dtype}")
            axis.set_xscale("log", base=2)
            axis.set_ylim(0, 1.08 * peak)
            axis.grid(alpha=0.3)
            share = axis.secondary_yaxis("right", functions=(lambda y, p=peak: y / p, lambda y, p=peak: y * p))
            if axis is axes[i][-1]:
                share.set_ylabel("of the peak")
            if i == len(dtypes) - 1:
                axis.set_xlabel("tokens")
        axes[i][0].set_ylabel("GFLOP/s of visible pairs")
        axes[i][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def time_kernels(args):
    """Prints and returns a row for each case, type, length and program."""
    rows = []
    print(f"{'case':12} {'type':5} {'n':>7}  {'who':14} {'ms':>9} {'GFLOP/s':>8}  of peak")
    with tempfile.TemporaryDirectory() as scratch:
        for dtype in args.dtypes:
            for n in args.lengths:
                for case, (mask, mask_mod, is_causal) in cases(n, scratch).items():
                    ours = run_flymask(args, mask, n, dtype)
                    results = [("flymask", ours["forward_ms"]), *run_peers(mask_mod, is_causal, n, dtype)]
                    for who, ms in results:
                        gflops = ours["visible_pairs"] * 4 * DIM / ms / 1e6
                        row = {"case": case, "dtype": dtype, "n": n, "who": who, "ms": ms, "gflops": gflops}
                        row["ratio"] = gflops / ours["peak_gflops"]
                        row["peak"], row["peak_kind"] = ours["peak_gflops"], ours["peak_kind"]
                        rows.append(row)
                        print(f"{case:12} {dtype:5} {n:7d}  {who:14} {ms:9.2f} {gflops:8.1f}  {row['ratio']:.2f}", flush=True)
    return rows


def main():
    args = parse_arguments()
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed here: nothing is compared. See the first lines of this file.")
        return 0
    os.makedirs(args.o, exist_ok=True)
    torch.set_num_threads(args.threads)
    kind, rows = ("maps", time_maps(args)) if args.maps else ("kernels", time_kernels(args))
    path = os.path.join(args.o, "maps.json" if args.maps else "peers.json")
    with open(path, "w") as file:
        json.dump({"torch": torch.__version__, "threads": args.threads, kind: rows}, file, indent=1)
    print(f"wrote {path}")
    if not args.maps:
        plot = args.plot or os.path.join(args.o, "peers.png")
        draw(rows, plot)
        print(f"wrote {plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
