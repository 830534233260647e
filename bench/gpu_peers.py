#!/usr/bin/env python3
"""Times the peers of flymask's CUDA kernels in the settings of RESULTS/flymask.json (gpu_bench), and puts them side by side.

    python3 gpu_peers.py RESULTS [--rehearse]

Peers, each where it is installed: PyTorch's FlexAttention (compiled, its block mask at hand), scaled_dot_product_attention
(SDPA, causal only) and flash-attn (causal and windows). Stochastic attention is FlexAttention over rows gathered by the
permutation, and scattered back: what it costs where the kernel does not do that. Milliseconds are medians of CUDA events.
Writes RESULTS/results.json and, with matplotlib, RESULTS/results.png; prints a table. Without torch or a GPU for it, the
figures of flymask alone."""

import json
import os
import sys

REPEATS, SIDE = 15, 128


def load_torch():
    try:
        import torch
    except ImportError:
        print("no torch: peers are left out")
        return None
    if not torch.cuda.is_available():
        print("torch finds no GPU: peers are left out")
        return None
    return torch


def median_ms(torch, call):
    """Of at least 10 ms each, as gpu_bench measures."""

    def timed(calls):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / calls

    timed(1)
    once = timed(3)
    calls = 1 + int(10 / once) if once < 10 else 1
    return sorted(timed(calls) for _ in range(REPEATS))[REPEATS // 2]


def document_ids(n):
    """As gpu_bench.c: 100, 700, 300, 1500, 50, 1000, 100, ..."""
    ids, lengths, d = [], [100, 700, 300, 1500, 50, 1000], 0
    while len(ids) < n:
        ids += [d] * lengths[d % len(lengths)]
        d += 1
    return ids[:n]


class Peers:
    def __init__(self, torch):
        self.torch = torch
        try:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            self.flex, self.create = torch.compile(flex_attention), torch.compile(create_block_mask)
        except ImportError:
            self.flex = None
        try:
            from flash_attn import flash_attn_func

            self.flash = flash_attn_func
        except ImportError:
            self.flash = None

    def mask_mod(self, s):
        """The setting's mask, and for stochastic attention the permutation."""
        torch, n = self.torch, s["length"]
        if s["mask"] == "causal":
            return lambda b, h, q, k: k <= q, None
        if s["mask"] == "sliding_window":
            return lambda b, h, q, k: (k <= q) & (q - k < s["window"]), None
        if s["mask"] == "document":
            doc = torch.tensor(document_ids(n), device="cuda")
            return lambda b, h, q, k: (doc[q] == doc[k]) & (k <= q), None
        order = torch.randperm(n, device="cuda")
        return lambda b, h, q, k: (q - k <= SIDE) & (k - q <= SIDE) & (order[k] <= order[q]), order

    def calls(self, s):
        """name -> function of (q, k, v) that gives the output, in torch's [batch, heads, sequence, dim]."""
        torch, n = self.torch, s["length"]
        found = {}
        mod, order = self.mask_mod(s)
        if self.flex:
            block_mask = self.create(mod, None, None, n, n, device="cuda")
            if order is None:
                found["FlexAttention"] = lambda q, k, v: self.flex(q, k, v, block_mask=block_mask)
            else:
                inverse = torch.argsort(order)

                def permuted(q, k, v):
                    rows = [x.index_select(2, order) for x in (q, k, v)]
                    return self.flex(*rows, block_mask=block_mask).index_select(2, inverse)

                found["FlexAttention"] = permuted
        if s["mask"] == "causal":
            sdpa = torch.nn.functional.scaled_dot_product_attention
            found["SDPA"] = lambda q, k, v: sdpa(q, k, v, is_causal=True)
        if self.flash and s["mask"] in ("causal", "sliding_window"):
            window = (s["window"] - 1, 0) if s["window"] else (-1, -1)
            found["flash-attn"] = lambda q, k, v: self.flash(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True, window_size=window
            ).transpose(1, 2)
        return found

    def measure(self, s):
        torch = self.torch
        torch._dynamo.reset()  # beyond a few masks it would stop compiling
        shape = (s["batch"], s["heads"], s["length"], s["dim"])
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        d_out, figures = torch.randn(shape, device="cuda", dtype=torch.bfloat16), {}
        for name, call in self.calls(s).items():
            try:
                with torch.no_grad():
                    forward = median_ms(torch, lambda: call(q, k, v))
                out = call(q, k, v)
                gradients = lambda: torch.autograd.grad(out, (q, k, v), d_out, retain_graph=True)
                figures[name] = {"forward_ms": forward, "backward_ms": median_ms(torch, gradients)}
                del out
            except RuntimeError as error:  # out of memory among them
                print(f"{name}, {title(s)}: {str(error).splitlines()[0]}", file=sys.stderr)
            torch.cuda.empty_cache()
        return figures


def title(s):
    window = f" {s['window']}" if s["window"] else ""
    return f"{s['mask']}{window}, D {s['dim']}, B {s['batch']}, n {s['length']}"


def print_table(settings):
    names = ["flymask"] + sorted({name for s in settings for name in s["peers"]})
    print("| setting | " + " | ".join(f"{n}, fwd ms | bwd ms" for n in names) + " | fwd TFLOP/s | bwd TFLOP/s |")
    print("|---" + "|---:" * (2 * len(names) + 2) + "|")
    for s in settings:
        cells = []
        for name in names:
            figures = s if name == "flymask" else s["peers"].get(name)
            cells += [f"{figures[key]:.3f}" if figures else "" for key in ("forward_ms", "backward_ms")]
        rates = f"{s['forward_tflops']:.1f} | {s['backward_tflops']:.1f}"
        print(f"| {title(s)} | " + " | ".join(cells) + f" | {rates} |")


def plot(settings, path):
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no matplotlib: no plot")
        return
    kinds = sorted({(s["mask"], s["window"], s["dim"]) for s in settings})
    columns = 4
    rows = (len(kinds) + columns - 1) // columns
    figure, axes = plt.subplots(rows, columns, figsize=(4 * columns, 3 * rows), squeeze=False)
    for axis, kind in zip(axes.flat, kinds):
        chosen = [s for s in settings if (s["mask"], s["window"], s["dim"]) == kind]
        for name in ["flymask"] + sorted({n for s in chosen for n in s["peers"]}):
            points = [(s["length"], s if name == "flymask" else s["peers"].get(name), s) for s in chosen]
            points = sorted((n, s["pairs"] * s["dim"] * 14e-9 / (f["forward_ms"] + f["backward_ms"])) for n, f, s in points if f)
            axis.plot([p[0] for p in points], [p[1] for p in points], marker="o", label=name)
        axis.set_title(f"{kind[0]} {kind[1] or ''} D = {kind[2]}", fontsize=9)
        axis.set_xscale("log", base=2)
        axis.set_ylabel("TFLOP/s, fwd + bwd")
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, rehearse = sys.argv[1], "--rehearse" in sys.argv[2:]
    with open(os.path.join(folder, "flymask.json"), encoding="utf-8") as file:
        settings = json.load(file)
    torch = None if rehearse else load_torch()
    peers = Peers(torch) if torch else None
    for s in settings:
        s["peers"] = peers.measure(s) if peers else {}
    device = torch.cuda.get_device_name() if torch else None
    versions = {"torch": torch.__version__} if torch else {}
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"device": device, "versions": versions, "settings": settings}, file, indent=1)
    print_table(settings)
    if not rehearse:
        plot(settings, os.path.join(folder, "results.png"))


if __name__ == "__main__":
    main()
