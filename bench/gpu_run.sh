#!/usr/bin/env bash
# run.sh [RESULTS] [--rehearse]: every case of the suite on the GPU, then the benchmarks and the peers. Results:
# suite.txt, flymask.json, results.json, results.svg. Ends with 1 where a case fails or is missing, or there is no GPU.
set -u
here=$(cd "$(dirname "$0")" && pwd)
results=${1:-$here/results}
rehearse=${2:-}
mkdir -p "$results" || exit 1
results=$(cd "$results" && pwd)
cd "$here" || exit 1
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" FLYMASK_GPU_IMAGES="$here/images"
export CK_DEFAULT_TIMEOUT=600 CK_VERBOSITY=normal

device=$(./gpu_bench --device) || exit 1
echo "$device; kernels for $(cat images/target)" | tee "$results/suite.txt"
failed=0 passed=0
while read -r suite case; do
  if output=$(CK_RUN_CASE="$case" "./gpu_$suite" 2>&1 </dev/null) && grep -Eq '^100%: Checks: [1-9]' <<<"$output"; then
    passed=$((passed + 1))
    echo "passed  $suite $case" >>"$results/suite.txt"
  else
    failed=$((failed + 1))
    printf 'FAILED  %s %s\n%s\n' "$suite" "$case" "$output" | tee -a "$results/suite.txt"
  fi
done <cases
expected=$(cat images/cases)
if [ $((passed + failed)) -ne "$expected" ]; then
  echo "FAILED  $((passed + failed)) cases of $expected ran" | tee -a "$results/suite.txt"
  failed=$((failed + 1))
fi
echo "$passed cases passed, $failed failed: $results/suite.txt"

./gpu_bench images $rehearse >"$results/flymask.json" || failed=1
if command -v python3 >/dev/null; then
  python3 gpu_peers.py "$results" $rehearse || failed=1
else
  echo "no python3: the figures of flymask alone are in $results/flymask.json"
fi
exit $((failed > 0))
