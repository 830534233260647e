#!/bin/sh
# check.sh FLYMASK PTXAS MASK TYPE D[,DV] TARGET DIRECTION [NAME=VALUE...]: compiles a mask to PTX and assembles it. Fails where ptxas
# refuses or warns, or a kernel spills registers or keeps locals in memory. One line for each kernel.
set -eu
flymask=$1 ptxas=$2 mask=$3 type=$4 dim=$5 target=$6 direction=$7
shift 7
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
back=
case $direction in bwd) back=--backward ;; decode) back=--decode ;; esac
"$flymask" build "$mask" "$@" --dtype "$type" --head-dim "$dim" --target "$target" --emit asm $back -o "$work/k.ptx"
"$ptxas" -v -arch="$target" "$work/k.ptx" -o "$work/k.cubin" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# What "-v" says of a kernel: its name; stack and spills; registers.
awk -v what="$mask $type $dim $target" '
  /Function properties for/ { name = $NF }
  /bytes stack frame/ { split($0, n, /[^0-9]+/); stack = n[2]; stores = n[3]; loads = n[4] }
  /Used [0-9]+ registers/ {
    for (i = 1; i < NF; i++) if ($i == "Used") registers = $(i + 1)
    printf "%s %s: %d registers, %d bytes of stack, spills %d + %d bytes\n", what, name, registers, stack, stores, loads
    if (stack + stores + loads) bad = 1
    kernels++
  }
  /warning|C75[0-9][0-9]/ { print; bad = 1 }
  END { if (!kernels) { print "no kernels"; bad = 1 } exit bad }' "$work/log"
