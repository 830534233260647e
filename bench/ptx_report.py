#!/usr/bin/env python3
"""What limits the CUDA kernels, read off their machine code: no GPU is needed, and no figure here is a speed.

usage: ptx_report.py FLYMASK [--ptxas PTXAS] [--target sm_80,...] [--dtype bf16|f32] [--score NAME] [--json FILE] [--check]

Each kernel is compiled by `flymask build --emit asm` and assembled by ptxas. The instructions of its main loop are counted by the
unit that executes them, along the path of a full tile and that of a partial one, and set against the rates of NVIDIA's programming
guide ("Arithmetic Instructions") and white papers: results per multiprocessor and clock. The bound is the share of the tensor units'
peak that the busiest unit leaves, everything else overlapped. It is an upper limit from published rates, not a measurement. "mma"
and not wgmma is what these kernels issue on sm_90: there the tensor units reach about 0.6 of their peak by it.

f32 has no tensor units: of each kernel the loops of multiply-adds are counted, those that sum over the channels and those that
sum over rows, and the bound is the share of the FMA units' peak that the busiest unit leaves in the worst of them.

--check: exit status 1 where a bf16 kernel for sm_80 misses what it is built to, or spills.
"""
import argparse, collections, itertools, json, os, re, struct, subprocess, sys, tempfile

# Cycles that one of the four sub-cores takes for a warp's instruction. tensor: m16n8k16, 2048 multiply-adds.
RATES = {
    "sm_80": {"tensor": 8, "fma": 2, "alu": 2, "mufu": 8},
    "sm_86": {"tensor": 16, "fma": 1, "alu": 2, "mufu": 8},
    "sm_89": {"tensor": 16, "fma": 1, "alu": 2, "mufu": 8},
    "sm_90": {"tensor": 8 / 1.2, "fma": 1, "alu": 2, "mufu": 8},
}
SHARED = {"sm_80": (164, 163), "sm_86": (100, 99), "sm_89": (100, 99), "sm_90": (228, 227)}  # KiB of a multiprocessor, of a block
# Opcodes: the low 9 bits; the 3 above say where operands come from (read off ptxas 13.0's code).
NAMES = {
    0x03C: "HMMA", 0x03B: "LDSM", 0x1AE: "LDGSTS", 0x108: "MUFU", 0x023: "FFMA", 0x020: "FMUL", 0x021: "FADD", 0x024: "IMAD",
    0x025: "IMAD", 0x027: "IMAD", 0x009: "FMNMX", 0x008: "FSEL", 0x00C: "ISETP", 0x00B: "FSETP", 0x010: "IADD3", 0x011: "LEA",
    0x012: "LOP3", 0x189: "SHFL", 0x03E: "F2FP", 0x181: "LDG", 0x186: "STG", 0x188: "STS", 0x184: "LDS", 0x183: "LDL",
    0x187: "STL", 0x147: "BRA", 0x14D: "EXIT", 0x11D: "BAR", 0x118: "NOP",
}  # fmt: skip
# What the bf16 kernels for sm_80 are built to: the least bound by D, the most instructions of a partial tile by a full one's.
LEAST = {
    64: {"fly_forward": 1.00, "fly_backward_keys": 1.00, "fly_backward_queries": 1.00},
    128: {"fly_forward": 1.00, "fly_backward_keys": 0.85, "fly_backward_queries": 0.85},
}
MOST = {"causal_window": 1.25, "stochastic": 1.45}
FMA = {"FFMA", "FMUL", "FADD", "IMAD"}
# Neither arithmetic nor memory: barriers, branches, uniform registers. They take an issue slot.
OTHER = {"BRA", "EXIT", "BAR", "NOP"}
CONTROL = {0x1AF, 0x11A, 0x141, 0x145, 0x148, 0x119, 0x005, 0x090, 0x092, 0x099, 0x082, 0x0B9, 0x091, 0x0A4, 0x182, 0x1C3}


class Instruction:
    def __init__(self, low, high, at, target):
        self.at, code = at, low & 0x1FF
        never = (low >> 12 & 15) == 15  # @!PT: what ptxas puts before copies takes an issue slot, and reads nothing
        self.name = "NOP" if never else NAMES.get(code, "other" if code in CONTROL else "alu")
        self.width = {4: 1, 5: 2, 6: 4}.get(high >> 9 & 7, 1)  # wavefronts of a shared access: 32, 64, 128 bits
        self.conditional = (low >> 12 & 7) != 7 or (low >> 15 & 1)
        self.goes = None
        if self.name == "BRA":
            offset = (low >> 34) | (high & 0x3FFFF) << 30
            offset -= (1 << 48) if offset >> 47 else 0
            self.goes = at + 16 + 4 * (offset if target < 90 else offset << 8 | (low >> 16 & 255))


def sections(cubin):
    data = open(cubin, "rb").read()
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]
    text = heads[names][4]
    for name, _, _, _, offset, length in heads:
        end = data.index(b"\0", text + name)
        yield data[text + name : end].decode(), data[offset : offset + length]


def kernels(cubin, target):
    for name, code in sections(cubin):
        if name.startswith(".text."):
            words = struct.unpack(f"<{len(code) // 8}Q", code)
            yield name[6:], [Instruction(words[2 * i], words[2 * i + 1], 16 * i, target) for i in range(len(words) // 2)]


def main_loop(code):
    """First and last index of the loop with the most products; the innermost of them."""
    best = None
    for i, ins in enumerate(code):
        if ins.goes is not None and 0 <= ins.goes <= ins.at:
            first = ins.goes // 16
            products = sum(x.name == "HMMA" for x in code[first : i + 1])
            if products and (best is None or (products, first - i) > best[0]):
                best = ((products, first - i), first, i)
    return best and best[1:]


def fma_loops(code):
    """The innermost loops that multiply and add, without those of partial tiles, which select between sums."""
    loops = []
    for i, ins in enumerate(code):
        if ins.goes is not None and 0 <= ins.goes <= ins.at:
            first = ins.goes // 16
            c = count(code, [(first, i + 1)])
            inner = any(x.goes is not None and ins.goes <= x.goes <= x.at for x in code[first:i])
            if not inner and c["FFMA"] >= 32 and c["FSEL"] < 16:
                loops.append(c)
    return loops


def paths(code, first, last):
    """Ways from the loop's start to its end, as lists of blocks (first, behind the last instruction)."""
    starts = {first}
    for i in range(first, last + 1):
        if code[i].goes is not None:
            starts |= {i + 1, code[i].goes // 16}
    starts = sorted(s for s in starts if first <= s <= last)
    ends = {s: e for s, e in zip(starts, starts[1:] + [last + 1])}
    found, stack = [], [(first, [])]
    while stack and len(found) < 20000:
        at, way = stack.pop()
        if at not in ends or any(at == a for a, _ in way):
            continue
        end, tail = ends[at], code[ends[at] - 1]
        way = way + [(at, end)]
        if end == last + 1:
            found.append(way)
            continue
        if tail.goes is not None:
            stack.append((tail.goes // 16, way))
        if tail.goes is None or tail.conditional:
            stack.append((end, way))
    return found


def count(code, way):
    c = collections.Counter()
    for a, b in way:
        for i in code[a:b]:
            c[i.name] += 1
            if i.name in ("LDS", "STS", "LDGSTS"):
                c["waves"] += i.width
            c["waves"] += 4 * (i.name == "LDSM") + (i.name == "SHFL")
            c["all"] += 1
    return c


def full_and_partial(code, first, last):
    """Counts of an ordinary iteration, and of one whose tile is partial: the first block that selects many scores is the mask's."""
    ways = [(count(code, w), w) for w in paths(code, first, last)]
    most = max((c["HMMA"], c["LDGSTS"]) for c, _ in ways)
    ways = [(c, w) for c, w in ways if (c["HMMA"], c["LDGSTS"]) == most]
    full = min(ways, key=lambda x: x[0]["all"])
    heavy = sorted({b for _, w in ways for b in w if count(code, [b])["FSEL"] >= 8 and b not in full[1]})
    masked = [x for x in ways if heavy and heavy[0] in x[1]]
    return full[0], min(masked, key=lambda x: x[0]["all"])[0] if masked else None


def units(c, target):
    r = RATES[target]
    alu = sum(n for k, n in c.items() if k in ("FMNMX", "FSEL", "ISETP", "FSETP", "IADD3", "LEA", "LOP3", "F2FP", "alu"))
    # Shared memory is the multiprocessor's: the four sub-cores wait for each other.
    return {
        "tensor": c["HMMA"] * r["tensor"], "shared": c["waves"] * 4, "issue": c["all"], "mufu": c["MUFU"] * r["mufu"],
        "fma": sum(c[k] for k in FMA) * r["fma"], "alu": alu * r["alu"],
    }  # fmt: skip


def blocks_on(target, registers, shared, threads):
    by_registers = 65536 // ((registers + 7) // 8 * 8 * threads)
    return min(by_registers, SHARED[target][0] * 1024 // (shared + 1024)) if shared <= SHARED[target][1] * 1024 else 0


def build(args, work, mask, dim, target, backward):
    ptx, cubin = os.path.join(work, "k.ptx"), os.path.join(work, "k.cubin")
    command = [args.flymask, "build", mask, "--head-dim", str(dim), "--dtype", args.dtype, "--target", target, "--emit", "asm", "-o", ptx]
    command += ["--score", args.score] if args.score else []
    subprocess.run(command + ["--backward"] * backward, check=True)
    log = subprocess.run([args.ptxas, "-v", f"-arch={target}", ptx, "-o", cubin], check=True, capture_output=True, text=True).stderr
    used, name = {}, None
    for line in log.splitlines():
        if "Function properties for" in line:
            name = line.split()[-1]
            used[name] = {}
        if "spill stores" in line:
            used[name]["spills"] = [int(x) for x in re.findall(r"(\d+) bytes spill", line)]
        if m := re.search(r"Used (\d+) registers", line):
            used[name]["registers"] = int(m.group(1))
    # Threads are in the text; shared memory is the launch's, and the text says how much in a comment.
    text = open(ptx).read()
    for m in re.finditer(r"// (\w+): (\d+) threads, (\d+) bytes of shared memory", text):
        used.setdefault(m.group(1), {}).update(threads=int(m.group(2)), shared=int(m.group(3)))
    return cubin, used


def report(args, work, mask, dim, target, backward):
    cubin, used = build(args, work, mask, dim, target, backward)
    for name, code in kernels(cubin, int(target[3:])):
        loop = None if name.endswith("_any") else main_loop(code)
        if not loop:
            continue
        full, partial = full_and_partial(code, *loop)
        cycles = units(full, target)
        limit = max(cycles, key=cycles.get)
        row = dict(kernel=name, mask=mask, dim=dim, target=target, **used[name], full=dict(full), cycles=cycles, limit=limit)
        row["bound"] = cycles["tensor"] / cycles[limit]
        row["partial"] = partial["all"] / full["all"] if partial else None
        row["partial_bound"] = None
        if partial:
            cycles = units(partial, target)
            row["partial_bound"] = cycles["tensor"] / max(cycles.values())
        row["blocks"] = blocks_on(target, row["registers"], row["shared"], row["threads"])
        yield row


def misses(row):
    """What a row misses of LEAST and MOST, in words, to their two digits."""
    least, most = LEAST[row["dim"]][row["kernel"]], MOST[row["mask"]]
    if any(row["spills"]):
        yield f"spills {row['spills']} bytes"
    if round(row["bound"], 2) < least:
        yield f"bound {row['bound']:.2f}, not {least:.2f}"
    if not row["partial"]:
        yield "no partial tile found"
    elif round(row["partial"], 2) > most:
        yield f"a partial tile takes {row['partial']:.2f} x, not {most:.2f}"


def check(rows):
    wrong = [f"{r['kernel']}, D {r['dim']}, {r['mask']}: {what}" for r in rows for what in misses(r)]
    seen = {(r["dim"], r["kernel"], r["mask"]) for r in rows}
    for dim, mask in itertools.product(LEAST, MOST):
        wrong += [f"{k}, D {dim}, {mask}: not read" for k in LEAST[dim] if (dim, k, mask) not in seen]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def report_f32(args, work, mask, dim, target, backward):
    cubin, used = build(args, work, mask, dim, target, backward)
    for name, code in kernels(cubin, int(target[3:])):
        loops = [] if name.endswith("_any") else fma_loops(code)
        if not loops:
            continue
        row = dict(kernel=name, mask=mask, dim=dim, target=target, **used[name], loops=[dict(c) for c in loops])
        bounds = []
        for c in loops:
            cycles = units(c, target)
            bounds.append((c["FFMA"] * RATES[target]["fma"] / max(cycles.values()), max(cycles, key=cycles.get)))
        row["bound"], row["limit"] = min(bounds)
        row["blocks"] = blocks_on(target, row["registers"], row["shared"], row["threads"])
        yield row


def print_f32(args):
    rows = []
    print("| kernel, D, mask | target | registers, spills | shared, blocks | FFMA of all, each loop | limit, bound |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for target, dim, mask, backward in itertools.product(
            args.target.split(","), args.dims.split(","), args.masks.split(","), (False, True)
        ):
            for r in report_f32(args, work, mask, int(dim), target, backward):
                rows.append(r)
                loops = ", ".join(f"{c['FFMA']} of {c['all']}" for c in r["loops"])
                print(
                    f"| {r['kernel'][4:]}, {dim}, {mask} | {target} | {r['registers']}, {'+'.join(map(str, r['spills']))} "
                    f"| {r['shared'] / 1024:g} KiB, {r['blocks']} | {loops} | {r['limit']}, {r['bound']:.2f} |", flush=True)  # fmt: skip
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("flymask")
    p.add_argument("--ptxas", default="ptxas")
    p.add_argument("--target", default="sm_80,sm_86,sm_90")
    p.add_argument("--masks", default="causal_window,stochastic")
    p.add_argument("--dims", default="64,128")
    p.add_argument("--dtype", default="bf16")
    p.add_argument("--score", help="a score modifier, inlined into the kernels")
    p.add_argument("--json")
    p.add_argument("--check", action="store_true", help="of the bf16 kernels for sm_80")
    args = p.parse_args()
    if args.check:
        args.target, args.dims, args.masks, args.dtype, args.score = "sm_80", "64,128", ",".join(MOST), "bf16", None
    if args.dtype == "f32":
        rows = print_f32(args)
        if args.json:
            json.dump(rows, open(args.json, "w"), indent=1)
        return
    rows = []
    print("| kernel, D, mask | target | registers, spills | shared, blocks | HMMA of all | tensor / shared / issue / mufu / fma / alu | limit, bound | partial: instructions, bound |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for target in args.target.split(","):
            for dim in args.dims.split(","):
                for mask in args.masks.split(","):
                    for backward in (False, True):
                        for r in report(args, work, mask, int(dim), target, backward):
                            rows.append(r)
                            c, spills = r["cycles"], "+".join(map(str, r["spills"]))
                            partial = f"{r['partial']:.2f} x, {r['partial_bound']:.2f}" if r["partial"] else ""
                            print(
                                f"| {r['kernel'][4:]}, {dim}, {mask} | {target} | {r['registers']}, {spills} | {r['shared'] / 1024:g} KiB, {r['blocks']} "
                                f"| {r['full']['HMMA']} of {r['full']['all']} | " + " / ".join(f"{v:.0f}" for v in c.values()) +
                                f" | {r['limit']}, {r['bound']:.2f} | {partial} |", flush=True)  # fmt: skip
    if args.json:
        json.dump(rows, open(args.json, "w"), indent=1)
    return check(rows) if args.check else 0


if __name__ == "__main__":
    sys.exit(main())
