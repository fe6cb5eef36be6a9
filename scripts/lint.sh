#!/usr/bin/env bash
# clang-tidy (.clang-tidy) over every C++ file that the preset `dev` compiles; arguments are regular expressions of paths
# instead, e.g. scripts/lint.sh models/fabric. Needs that build: generated headers are read.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/dev
if [[ ! -f $build/compile_commands.json ]]; then
  echo "lint: $build/compile_commands.json is missing: build the preset dev first (scripts/test.sh)" >&2
  exit 1
fi
(($#)) || set -- "^$PWD/(models|ccl|runtime|platform|tests)/"
# What clang warns of beside GCC is not what is looked for.
run-clang-tidy-14 -quiet -j "$(nproc)" -p "$build" -extra-arg=-Wno-everything "$@"
