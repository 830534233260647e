#!/bin/sh
# sources.sh ROOT COMPILER...: every file of masks/ is strict ISO C for each compiler, and begins with its name.
set -eu
root=$1
shift
for source in "$root"/masks/*.c; do
  name=$(basename "$source" .c)
  head -n 1 "$source" | grep -q "^/\* $name: [^ ]" || { echo "$source: does not begin with /* $name: ..." >&2; exit 1; }
  grep -q '^ \* Convention: ' "$source" || { echo "$source: says no convention" >&2; exit 1; }
  for compiler in "$@"; do
    "$compiler" -std=c17 -O1 -Wall -Wextra -Wpedantic -Werror -I"$root/include" -c "$source" -o /dev/null
  done
done
