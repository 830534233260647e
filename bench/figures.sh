#!/usr/bin/env bash
# Prints the README's tables of figures on this machine: kernels against the peak measured in the same run, decoding,
# compilation, score modifiers; of maps what the command measures (the README's table is that of bench_maps).
# Usage: bench/figures.sh [kernels|decode|threads|maps|compile|scores|linear]...
# (default: all but threads and linear; about 6 minutes on one core). threads wants two free cores.
# linear takes 2 minutes and 4 GiB, and leaves its chart in docs/linear.png.
set -eu
cd "$(dirname "$0")/.."
flymask=${FLYMASK:-build/flymask}
[ -x "$flymask" ] || { echo "no $flymask: run ./scripts/demo.sh first" >&2; exit 1; }

field() { # field NAME: that number of the JSON object on stdin
  tr -d '\n' | sed -n "s/.*\"$1\": *\([-0-9.eE+]*\).*/\1/p"
}

kernel() { # kernel LABEL LENGTH DIM DTYPE MASK...
  local label=$1 n=$2 dim=$3 dtype=$4 json
  shift 4
  json=$("$flymask" bench "$@" --lengths "$n,$n" --heads 1,1 --head-dim "$dim" --dtype "$dtype" --threads 1 --backward --json)
  printf '| %-20s | %6d | %4d | %-4s | %6.1f | %8.2f | %7.1f | %5.2f | %8.2f | %7.1f | %5.2f |\n' "$label" "$n" "$dim" "$dtype" \
    "$(field peak_gflops <<<"$json")" "$(field forward_ms <<<"$json")" "$(field gflops <<<"$json")" "$(field peak_ratio <<<"$json")" \
    "$(field backward_ms <<<"$json")" "$(field backward_gflops <<<"$json")" "$(field backward_peak_ratio <<<"$json")"
}

kernels() {
  echo '| mask                 | tokens |    D | type |   peak |  forward | GFLOP/s | ratio | backward | GFLOP/s | ratio |'
  echo '|----------------------|-------:|-----:|------|-------:|---------:|--------:|------:|---------:|--------:|------:|'
  local dim n
  for dim in 64 128; do
    for n in 2048 8192 32768; do kernel causal "$n" "$dim" f32 causal; done
    for n in 8192 32768; do kernel 'window 256' "$n" "$dim" f32 sliding_window left=255 right=0; done
  done
  kernel causal 8192 64 f16 causal
  for dim in 64 128; do
    kernel causal 8192 "$dim" bf16 causal
    kernel 'window 256' 8192 "$dim" bf16 sliding_window left=255 right=0
  done
  kernel 'window 128 + 128' 8192 64 f32 sliding_window left=128 right=128
  kernel 'SA 128 + 128, causal' 8192 64 f32 stochastic left=128 right=128 --rows random:1
}

zeros() { # zeros FILE ROWS COLUMNS: a .npy file of f32 zeros
  printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2, $3), }" > "$1"
  head -c $((4 * $2 * $3)) /dev/zero >> "$1"
}

ratio() { awk "BEGIN { print $1 / $2 }"; }

score() { # score LABEL OPTIONS...: beside causal alone, which is measured again each time
  local label=$1 plain json
  shift
  plain=$("$flymask" bench causal --lengths 4096 --heads 1,1 --head-dim 64 --dtype f32 --threads 1 --backward --json)
  json=$("$flymask" bench causal "$@" --lengths 4096 --heads 1,1 --head-dim 64 --dtype f32 --threads 1 --backward --json)
  local f b
  f=$(field forward_ms <<<"$json") b=$(field backward_ms <<<"$json")
  printf '| %-22s | %9.2f | %10.2f | %9.2f | %10.2f |\n' "$label" "$f" \
    "$(ratio "$f" "$(field forward_ms <<<"$plain")")" "$b" "$(ratio "$b" "$(field backward_ms <<<"$plain")")"
}

scores() {
  echo '| causal, with           |   forward | x causal   |  backward | x causal   |'
  echo '|------------------------|----------:|-----------:|----------:|-----------:|'
  local table
  table=$(mktemp -d)
  zeros "$table/bias.npy" 1 8191
  score '(nothing)'
  score 'ALiBi, slope 2^-8' --score alibi score.heads=1
  score 'ALiBi, slope 2^-1' --score alibi score.heads=8
  score 'soft cap' --score softcap
  score 'relative bias' --score relative_bias "score.bias=$table/bias.npy"
  rm -r "$table"
}

decode() {
  echo '| one query, 32 heads (8 of keys) | type |      bytes |    ms |  GB/s | read loop | ratio |'
  echo '|---------------------------------|------|-----------:|------:|------:|----------:|------:|'
  local dtype json
  for dtype in f32 bf16; do
    json=$("$flymask" bench full --lengths 1,32768 --heads 32,8 --head-dim 128 --dtype "$dtype" --threads 1 --bandwidth --json)
    printf '| 32,768 keys, D = 128            | %-4s | %10d | %5.2f | %5.1f | %9.1f | %5.2f |\n' "$dtype" "$(field bytes <<<"$json")" \
      "$(field forward_ms <<<"$json")" "$(field gbs <<<"$json")" "$(field read_gbs <<<"$json")" "$(field read_ratio <<<"$json")"
  done
}

threads() { # two threads beside one, on two free cores: the floor is 1.9
  echo '| causal, 8,192 tokens, 4 heads, D = 64 | 1 thread, ms | 2 threads, ms | ratio |'
  echo '|---------------------------------------|-------------:|--------------:|------:|'
  local one two what
  local -a call=(causal --lengths 8192 --heads 4,4 --head-dim 64 --dtype f32 --backward --json)
  one=$("$flymask" bench "${call[@]}" --threads 1)
  two=$("$flymask" bench "${call[@]}" --threads 2)
  for what in forward backward; do
    printf '| %-37s | %12.2f | %13.2f | %5.2f |\n' "$what" "$(field ${what}_ms <<<"$one")" "$(field ${what}_ms <<<"$two")" \
      "$(ratio "$(field ${what}_ms <<<"$one")" "$(field ${what}_ms <<<"$two")")"
  done
}

map() { # map LABEL LENGTH MASK...
  local label=$1 n=$2 json
  shift 2
  json=$("$flymask" map "$@" --lengths "$n,$n" --json)
  printf '| %-20s | %8d | %9d | %9d | %8.3f | %8.3f | %8.2f | %9d |\n' "$label" "$n" "$(field tiles_full <<<"$json")" \
    "$(field tiles_partial <<<"$json")" "$(field map_ms <<<"$json")" "$(field transposed_ms <<<"$json")" \
    "$(field expand_ms <<<"$json")" "$(field bytes <<<"$json")"
}

maps() {
  echo '| mask, tiles of 128   |   tokens |      full |   partial |   map ms | transp.  |  expand  |     bytes |'
  echo '|----------------------|---------:|----------:|----------:|---------:|---------:|---------:|----------:|'
  map causal 8192 causal
  map causal 1048576 causal
  map 'window 256' 131072 sliding_window left=255 right=0
  map 'window 256' 1048576 sliding_window left=255 right=0
  map 'chunked 8192' 1048576 chunked
  map 'prefix 1000' 1048576 prefix_lm prefix=1000
  map 'SA 128 + 128, causal' 32768 stochastic left=128 right=128 --rows random:1
}

compile() {
  echo '| mask                 |  cold ms | cached ms |'
  echo '|----------------------|---------:|----------:|'
  local mask json
  for mask in causal sliding_window stochastic; do
    json=$("$flymask" bench "$mask" --lengths 256,256 --heads 1,1 --head-dim 64 --dtype f32 --threads 1 --json)
    printf '| %-20s | %8.1f | %9.2f |\n' "$mask" "$(field compile_cold_ms <<<"$json")" "$(field compile_cached_ms <<<"$json")"
  done
}

linear() { # one head, budget 256: SA and a sliding window by length
  local report
  report=$(mktemp -d)
  trap 'rm -r "$report"' RETURN
  "$flymask" compare --sections cost --methods swa,sa --random 1,1,1024,64 --threads 1 \
    --lengths 8192,16384,32768,65536,131072,262144,524288,1048576 -o "$report" >&2
  cp "$report/cost.png" docs/linear.png # scaled down where it is kept
  echo '| method |   tokens | forward ms | backward ms | ns a token |'
  echo '|--------|---------:|-----------:|------------:|-----------:|'
  awk -F, 'NR > 1 { printf "| %-6s | %8d | %10.2f | %11.2f | %10.0f |\n", $1, $3, $11, $12, $15 }' "$report/cost.csv"
}

[ $# -gt 0 ] || set -- kernels decode maps compile scores
for table in "$@"; do
  case $table in
  kernels | decode | threads | maps | compile | scores | linear) "$table" && echo ;;
  *) sed -n '2,6s/^# \?//p' "$0" >&2 && exit 2 ;;
  esac
done
