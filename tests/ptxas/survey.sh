#!/bin/sh
# survey.sh FLYMASK PTXAS TYPE TARGET DIRECTION MASK...: check.sh for each mask at D 64 and 128. What does not pass is
# printed; the last line counts.
set -u
flymask=$1 ptxas=$2 type=$3 target=$4 direction=$5
shift 5
check=$(dirname "$0")/check.sh
log=$(mktemp)
trap 'rm -f "$log"' EXIT
done=0 bad=0
for mask in "$@"; do
  for dim in 64 128; do
    done=$((done + 1))
    "$check" "$flymask" "$ptxas" "$mask" "$type" "$dim" "$target" "$direction" >"$log" 2>&1 && continue
    bad=$((bad + 1))
    echo "$mask $type $dim $target $direction:"
    cat "$log"
  done
done
echo "$done variants of $type $target $direction, $bad that spill or are warned of"
[ "$done" -gt 0 ] && [ "$bad" -eq 0 ]
