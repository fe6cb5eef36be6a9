#!/usr/bin/env bash
# Builds the benchmarks in release mode, runs each in a process of its own, and prints a Markdown table of what they
# measured (docs/performance.md says what it means). On a quiet machine, please: everything here is wall time.
#   scripts/bench.sh                 all of them
#   scripts/bench.sh FILE            the table goes to FILE too
#   scripts/bench.sh FILE REGEX...   only those whose name matches one of the expressions, e.g. scripts/bench.sh - Ring
# AHBM_BUILD_DIR names a build directory that exists already, to be used in place of build/release.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

file="${1:-}"
shift $(($# > 0 ? 1 : 0))
build="${AHBM_BUILD_DIR:-build/release}"
scripts/setup.sh
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
echo "bench: building ($build)" >&2
if ! { { [[ -n "${AHBM_BUILD_DIR:-}" ]] || cmake --preset release; } && cmake --build "$build" --target ahbm-bench; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
export SYSTEMC_DISABLE_COPYRIGHT_MESSAGE=1
bench="$build/tests/bench/ahbm-bench"

table() {
  local expression="${*:-.}"
  expression="${expression// /|}"
  echo "| benchmark | figure | value |"
  echo "|---|---|---:|"
  "$bench" --benchmark_list_tests | grep -E "$expression" | while read -r name; do
    echo "bench: $name" >&2
    # Of Google Benchmark's JSON only the lines behind "time_unit" are counters of ours; real_time is the time itself.
    "$bench" --benchmark_filter="^${name//./\\.}\$" --benchmark_format=json 2>/dev/null | awk -v name="${name%%/*}" '
      function row(figure, value) { printf "| %s | %s | %.6g |\n", name, figure, value }
      { gsub(/[",:]/, "") }
      $1 == "real_time" { time = $2 }
      $1 == "time_unit" { row("time (" $2 ")", time); counters = 1; next }
      counters && NF == 2 { row($1, $2) }
      $1 == "}" { counters = 0 }'
  done
}

if [[ -n "$file" && "$file" != - ]]; then
  table "$@" | tee "$file"
else
  table "$@"
fi
