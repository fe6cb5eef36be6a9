#!/usr/bin/env bash
# Installs what is needed, builds, and runs an all-reduce of 1 KiB to 64 MiB on the default machine (4 SIPs in a ring).
# Further arguments go to the run, e.g. scripts/demo.sh -t bfloat16
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
echo "demo: building (build/release)"
if ! { cmake --preset release && cmake --build --preset release --target ahbm-vp; } >"$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
echo "demo: ahbm-vp all_reduce -c configs/ring4.yaml -b 1K -e 64M -f 4 $*"
build/release/platform/ahbm-vp all_reduce -c configs/ring4.yaml -b 1K -e 64M -f 4 "$@"
