#!/usr/bin/env python3
"""Times the peers of flymask's CUDA kernels in the settings of RESULTS/flymask.json (gpu_bench), and puts them side by side.

    python3 gpu_peers.py RESULTS [--rehearse]

Peers, each where it is installed: PyTorch's FlexAttention (compiled, its block mask at hand), scaled_dot_product_attention
(SDPA, causal only) and flash-attn (causal and windows). Stochastic attention is FlexAttention over rows gathered by the
permutation, and scattered back: what it costs where the kernel does not do that. MoBA is FlexAttention over blocks chosen
before. Milliseconds are medians of CUDA events. Writes RESULTS/results.json and a plot, RESULTS/results.svg; prints a
table. Without torch or a GPU for it, the figures of flymask alone.

--rehearse: FlexAttention and SDPA on the CPU, in the sizes of gpu_bench --rehearse, where torch is there; without it invented
figures, so that table and plot have something to show. Neither says anything about speed."""

import importlib.util
import json
import math
import os
import sys
import time

REPEATS, SIDE = 15, 128


def load_torch(rehearse):
    if importlib.util.find_spec("torch") is None:
        print("no torch: peers are left out (pip install torch)", file=sys.stderr)
        return None
    try:
        import torch
    except Exception as error:  # a library that it does not find, a Python that it is not for
        print(f"torch cannot be imported, peers are left out: {first_line(error)}", file=sys.stderr)
        return None
    if rehearse or torch.cuda.is_available():
        return torch
    print("torch finds no GPU: peers are left out", file=sys.stderr)
    return None


def first_line(error):
    return f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"


def timed_on_gpu(torch, call, calls):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / calls


def timed_on_cpu(call, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) * 1e3 / calls


def document_ids(n):
    """As gpu_bench.c: 100, 700, 300, 1500, 50, 1000, 100, ..."""
    ids, lengths, d = [], [100, 700, 300, 1500, 50, 1000], 0
    while len(ids) < n:
        ids += [d] * lengths[d % len(lengths)]
        d += 1
    return ids[:n]


class Peers:
    def __init__(self, torch, rehearse):
        self.torch, self.rehearse = torch, rehearse
        self.device = "cpu" if rehearse else "cuda"
        self.flex = self.flash = None
        self.versions = {"torch": torch.__version__}
        try:
            from torch.nn.attention.flex_attention import create_block_mask, flex_attention

            self.flex, self.create = torch.compile(flex_attention), torch.compile(create_block_mask)
            # timing repeats a backward pass, which compiled code refuses when it has given away its buffers
            torch._functorch.config.donated_buffer = False
        except Exception as error:
            print(f"FlexAttention is left out: {first_line(error)}", file=sys.stderr)
        if importlib.util.find_spec("flash_attn") is None:
            print("no flash_attn: it is left out", file=sys.stderr)
            return
        try:
            import flash_attn

            self.flash, self.versions["flash_attn"] = flash_attn.flash_attn_func, flash_attn.__version__
        except Exception as error:  # often one of another torch
            print(f"flash_attn is left out: {first_line(error)}", file=sys.stderr)

    def median_ms(self, call):
        """Of at least 10 ms each, as gpu_bench measures; in a rehearsal one call."""
        if self.rehearse:
            return timed_on_cpu(call, 1)
        timed_on_gpu(self.torch, call, 1)
        once = timed_on_gpu(self.torch, call, 3)
        calls = 1 + int(10 / once) if once < 10 else 1
        return sorted(timed_on_gpu(self.torch, call, calls) for _ in range(REPEATS))[REPEATS // 2]

    def chosen_blocks(self, s, q, k):
        """MoBA's choice as a table [batch, heads, n, blocks]: the own block, and the best earlier ones by mean key."""
        torch, n, block, top = self.torch, s["length"], s["block"], s["top"]
        whole = n // block
        means = k.detach()[:, :, : whole * block].unflatten(2, (whole, block)).float().mean(3)
        scores = q.detach().float() @ means.transpose(2, 3)
        own = torch.arange(n, device=self.device) // block
        blocks = torch.arange(whole, device=self.device)
        scores.masked_fill_(blocks >= own[:, None], -math.inf)
        table = torch.zeros(*scores.shape[:3], (n + block - 1) // block, dtype=torch.bool, device=self.device)
        if whole and top > 1:
            best = scores.topk(min(top - 1, whole), dim=3)
            table.scatter_(3, best.indices, best.values > -math.inf)
        table.scatter_(3, own[None, None, :, None].expand(*table.shape[:3], 1), True)
        return table

    def block_mask(self, s, q, k):
        """The setting's block mask, and for stochastic attention the permutation."""
        torch, n, window, block = self.torch, s["length"], s["window"], s["block"]
        shape, order = (None, None), None
        if s["mask"] == "causal":
            mod = lambda b, h, q, k: k <= q
        elif s["mask"] == "sliding_window":
            mod = lambda b, h, q, k: (k <= q) & (q - k < window)
        elif s["mask"] == "document":
            doc = torch.tensor(document_ids(n), device=self.device)
            mod = lambda b, h, q, k: (doc[q] == doc[k]) & (k <= q)
        elif s["mask"] == "stochastic":
            order = torch.randperm(n, device=self.device)
            mod = lambda b, h, q, k: (q - k <= SIDE) & (k - q <= SIDE) & (order[k] <= order[q])
        else:
            table, shape = self.chosen_blocks(s, q, k), (s["batch"], s["heads"])
            mod = lambda b, h, q, k: table[b, h, q, k // block] & (k <= q)
        return self.create(mod, *shape, n, n, device=self.device), order

    def flex_call(self, s, q, k):
        mask, order = self.block_mask(s, q, k)
        if order is None:
            return lambda q, k, v: self.flex(q, k, v, block_mask=mask)
        inverse = self.torch.argsort(order)

        def permuted(q, k, v):
            rows = [x.index_select(2, order) for x in (q, k, v)]
            return self.flex(*rows, block_mask=mask).index_select(2, inverse)

        return permuted

    def sdpa_call(self, s, q, k):
        sdpa = self.torch.nn.functional.scaled_dot_product_attention
        return lambda q, k, v: sdpa(q, k, v, is_causal=True)

    def flash_call(self, s, q, k):
        window = (s["window"] - 1, 0) if s["window"] else (-1, -1)
        return lambda q, k, v: self.flash(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True, window_size=window
        ).transpose(1, 2)

    def makers(self, s):
        """name -> what makes a function of (q, k, v) that gives the output, in torch's [batch, heads, sequence, dim]."""
        found = {}
        if self.flex:
            found["FlexAttention"] = self.flex_call
        if s["mask"] == "causal":
            found["SDPA"] = self.sdpa_call
        if self.flash and s["mask"] in ("causal", "sliding_window"):
            found["flash-attn"] = self.flash_call
        return found

    def measure_one(self, make, s, tensors, d_out):
        """forward_ms and backward_ms; what went wrong after the first is said, and the first kept."""
        figures, call = {}, make(s, *tensors[:2])
        inputs = [x.detach() for x in tensors]
        with self.torch.no_grad():
            figures["forward_ms"] = self.median_ms(lambda: call(*inputs))
        try:
            out = call(*tensors)
            backward = lambda: self.torch.autograd.grad(out, tensors, d_out, retain_graph=True)
            figures["backward_ms"] = self.median_ms(backward)
        except Exception as error:
            print(f"{title(s)}, backward: {first_line(error)}", file=sys.stderr)
        return figures

    def measure(self, s):
        torch = self.torch
        torch._dynamo.reset()  # beyond a few masks it would stop compiling
        shape, bf16 = (s["batch"], s["heads"], s["length"], s["dim"]), torch.bfloat16
        figures = {}
        try:
            tensors = [torch.randn(shape, device=self.device, dtype=bf16, requires_grad=True) for _ in range(3)]
            d_out = torch.randn(shape, device=self.device, dtype=bf16)
        except Exception as error:  # too little memory
            print(f"{title(s)}: {first_line(error)}", file=sys.stderr)
            return figures
        for name, make in self.makers(s).items():
            try:
                figures[name] = self.measure_one(make, s, tensors, d_out)
            except Exception as error:  # out of memory, no compiler for Triton, a shape that a peer does not take
                print(f"{name}, {title(s)}: {first_line(error)}", file=sys.stderr)
            if not self.rehearse:
                torch.cuda.empty_cache()
        return figures


class Invented:
    """In a rehearsal without torch."""

    versions = {}

    def measure(self, s):
        return {
            "invented 1": {"forward_ms": 2 * s["forward_ms"], "backward_ms": 2 * s["backward_ms"]},
            "invented 2": {"forward_ms": 3 * s["forward_ms"]},
        }


def kind(s):
    size = s["window"] or s["block"]
    return f"{s['mask']} {size}" if size else s["mask"]


def title(s):
    return f"{kind(s)}, D {s['dim']}, B {s['batch']}, n {s['length']}"


def print_table(settings):
    names = ["flymask"] + sorted({name for s in settings for name in s["peers"]})
    print("| setting | " + " | ".join(f"{n}, fwd ms | bwd ms" for n in names) + " | fwd TFLOP/s | bwd TFLOP/s |")
    print("|---" + "|---:" * (2 * len(names) + 2) + "|")
    for s in settings:
        cells = []
        for name in names:
            figures = s if name == "flymask" else s["peers"].get(name)
            cells += [f"{figures[key]:.3f}" if figures and key in figures else "" for key in ("forward_ms", "backward_ms")]
        rates = f"{s['forward_tflops']:.1f} | {s['backward_tflops']:.1f}"
        print(f"| {title(s)} | " + " | ".join(cells) + f" | {rates} |")


def tflops(setting, figures):
    """Forward and backward; None where one is missing."""
    if not figures or "backward_ms" not in figures:
        return None
    return setting["pairs"] * setting["dim"] * 14e-9 / (figures["forward_ms"] + figures["backward_ms"])


def points_of(chosen, name):
    rates = ((s["length"], tflops(s, s if name == "flymask" else s["peers"].get(name))) for s in chosen)
    return sorted((length, rate) for length, rate in rates if rate is not None)


COLOURS = ["#1f6fb4", "#d9661f", "#3a9a4a", "#b8364f", "#7d5ba6"]


def panel(chosen, heading, left, top):
    """One mask: a line for each library, lengths to the right by powers of two."""
    names = ["flymask"] + sorted({n for s in chosen for n in s["peers"]})
    lines = {n: line for n in names if (line := points_of(chosen, n))}
    lengths = sorted({s["length"] for s in chosen})
    most = max([y for line in lines.values() for _, y in line] + [1e-9])
    low, high = math.log2(lengths[0]), max(math.log2(lengths[-1]), math.log2(lengths[0]) + 1)

    def at(length, y):
        return f"{left + 50 + 230 * (math.log2(length) - low) / (high - low):.1f},{top + 180 - 150 * y / most:.1f}"

    out = [
        f'<text x="{left + 50}" y="{top + 18}" font-weight="bold">{heading}</text>',
        f'<path d="M{left + 50},{top + 30}V{top + 180}H{left + 280}" fill="none" stroke="#888"/>',
        f'<text x="{left + 46}" y="{top + 36}" text-anchor="end">{most:.3g}</text>',
        f'<text x="{left + 46}" y="{top + 184}" text-anchor="end">0</text>',
    ]
    out += [f'<text x="{at(n, 0).split(",")[0]}" y="{top + 196}" text-anchor="middle">{n}</text>' for n in lengths[:: max(1, len(lengths) // 4)]]
    for i, (name, line) in enumerate(lines.items()):
        colour, points = COLOURS[i % len(COLOURS)], [at(*p) for p in line]
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        out += [f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="2.5" fill="{colour}"/>' for p in points]
        out.append(f'<text x="{left + 60}" y="{top + 44 + 13 * i}" fill="{colour}">{name}</text>')
    return out


def plot(settings, rehearse, path):
    """An SVG of small multiples, which takes no other package: a panel for each mask, head dimension and number of tokens."""
    panels, columns = {}, 4
    for s in settings:
        tokens = "" if s["batch"] * s["length"] == 16384 else ", B = 16" if s["batch"] == 16 else ""
        panels.setdefault(f"{kind(s)}, D = {s['dim']}{tokens}", []).append(s)
    width, height = 300 * columns, 210 * ((len(panels) + columns - 1) // columns) + 20
    heading = "TFLOP/s, forward and backward, by length" + (" (a rehearsal: nothing is measured)" if rehearse else "")
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="10">']
    out += [f'<rect width="{width}" height="{height}" fill="white"/>', f'<text x="8" y="14">{heading}</text>']
    for i, (name, chosen) in enumerate(panels.items()):
        out += panel(chosen, name, 300 * (i % columns), 210 * (i // columns) + 14)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out + ["</svg>", ""]))


def read_results(folder):
    path = os.path.join(folder, "flymask.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        sys.exit(f"{path} cannot be read: {error} (gpu_bench writes it)")


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--rehearse"]):
        sys.exit(__doc__)
    folder, rehearse = sys.argv[1], len(sys.argv) > 2
    results = read_results(folder)
    settings = results["settings"]
    torch = load_torch(rehearse)
    peers = Peers(torch, rehearse) if torch else Invented() if rehearse else None
    for s in settings:
        s["peers"] = peers.measure(s) if peers else {}
    results |= {"rehearsal": rehearse, "versions": peers.versions if peers else {}}
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    print_table(settings)
    plot(settings, rehearse, os.path.join(folder, "results.svg"))


if __name__ == "__main__":
    main()
