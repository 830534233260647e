#!/bin/sh
# rows.sh PTXAS TARGET PTX...: assembles the PTX that is part of the library. Fails where ptxas refuses or warns, or a kernel spills
# registers or keeps locals in memory. One line for each kernel.
set -eu
ptxas=$1 target=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ptx in "$@"; do
  "$ptxas" -v -arch="$target" "$ptx" -o "$work/k.cubin" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  awk -v target="$target" '
    /Function properties for/ { name = $NF }
    /bytes stack frame/ { if ($0 !~ /^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads/) { print name ": " $0; bad = 1 } }
    /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used") print name, target ": " $(i + 1) " registers"; kernels++ }
    /warning|C75[0-9][0-9]/ { print; bad = 1 }
    END { if (!kernels) { print "no kernels"; bad = 1 } exit bad }' "$work/log"
done
