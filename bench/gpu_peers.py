#!/usr/bin/env python3
"""Times the peers of flymask's CUDA kernels in the settings of RESULTS/flymask.json (gpu_bench), and puts them side by side.

    python3 gpu_peers.py RESULTS [--rehearse]

Peers, each where it is installed: PyTorch's FlexAttention (compiled, its block mask at hand), scaled_dot_product_attention
(SDPA, causal only) and flash-attn (causal and windows). Stochastic attention is FlexAttention over rows gathered by the
permutation, and scattered back: what it costs where the kernel does not do that. Milliseconds are medians of CUDA events.
Writes RESULTS/results.json and a plot, RESULTS/results.svg; prints a table. Without torch or a GPU for it, the
figures of flymask alone."""

import importlib.util
import json
import math
import os
import sys

REPEATS, SIDE = 15, 128


def load_torch(rehearse):
    if importlib.util.find_spec("torch") is None:
        print("no torch: peers are left out")
        return None
    if rehearse:  # the driver is a simulated one
        print("a rehearsal: peers are left out")
        return None
    import torch

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


def tflops(setting, figures):
    return setting["pairs"] * setting["dim"] * 14e-9 / (figures["forward_ms"] + figures["backward_ms"])


COLOURS = ["#1f6fb4", "#d9661f", "#3a9a4a", "#b8364f", "#7d5ba6"]


def panel(chosen, kind, left, top):
    """One mask: a line for each library, lengths to the right by powers of two."""
    names = ["flymask"] + sorted({n for s in chosen for n in s["peers"]})
    lines = {n: sorted((s["length"], tflops(s, f)) for s in chosen for f in [s if n == "flymask" else s["peers"].get(n)] if f) for n in names}
    lengths = sorted({s["length"] for s in chosen})
    most = max([y for line in lines.values() for _, y in line] + [1e-9])
    low, high = math.log2(lengths[0]), max(math.log2(lengths[-1]), math.log2(lengths[0]) + 1)

    def at(length, y):
        return f"{left + 50 + 230 * (math.log2(length) - low) / (high - low):.1f},{top + 180 - 150 * y / most:.1f}"

    out = [
        f'<text x="{left + 50}" y="{top + 18}" font-weight="bold">{kind[0]} {kind[1] or ""} D = {kind[2]}</text>',
        f'<path d="M{left + 50},{top + 30}V{top + 180}H{left + 280}" fill="none" stroke="#888"/>',
        f'<text x="{left + 46}" y="{top + 36}" text-anchor="end">{most:.3g}</text>',
        f'<text x="{left + 46}" y="{top + 184}" text-anchor="end">0</text>',
    ]
    out += [f'<text x="{at(n, 0).split(",")[0]}" y="{top + 196}" text-anchor="middle">{n}</text>' for n in lengths[:: max(1, len(lengths) // 4)]]
    for i, name in enumerate(names):
        colour, points = COLOURS[i % len(COLOURS)], [at(*p) for p in lines[name]]
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out += [f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2.5" fill="{colour}"/>' for p in points]
        out.append(f'<text x="{left + 60}" y="{top + 44 + 13 * i}" fill="{colour}">{name}</text>')
    return out


def plot(settings, path):
    """An SVG of small multiples, which takes no other package."""
    kinds, columns = sorted({(s["mask"], s["window"], s["dim"]) for s in settings}), 4
    width, height = 300 * columns, 210 * ((len(kinds) + columns - 1) // columns) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="10">']
    out += [f'<rect width="{width}" height="{height}" fill="white"/>', '<text x="8" y="14">TFLOP/s, forward and backward, by length</text>']
    for i, kind in enumerate(kinds):
        chosen = [s for s in settings if (s["mask"], s["window"], s["dim"]) == kind]
        out += panel(chosen, kind, 300 * (i % columns), 210 * (i // columns) + 14)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>", ""]))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, rehearse = sys.argv[1], "--rehearse" in sys.argv[2:]
    with open(os.path.join(folder, "flymask.json"), encoding="utf-8") as file:
        settings = json.load(file)
    torch = load_torch(rehearse)
    peers = Peers(torch) if torch else None
    for s in settings:
        s["peers"] = peers.measure(s) if peers else {}
    device = torch.cuda.get_device_name() if torch else None
    versions = {"torch": torch.__version__} if torch else {}
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump({"device": device, "versions": versions, "settings": settings}, file, indent=1)
    print_table(settings)
    plot(settings, os.path.join(folder, "results.svg"))


if __name__ == "__main__":
    main()
