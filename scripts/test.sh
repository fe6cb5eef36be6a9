#!/usr/bin/env bash
# Installs what is needed, builds everything with warnings as errors, and runs all tests.
# Further arguments go to ctest, e.g. scripts/test.sh -R Calendar
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scripts/setup.sh
cmake --preset dev
cmake --build --preset dev
ctest --preset dev --parallel "$(nproc)" "$@"
