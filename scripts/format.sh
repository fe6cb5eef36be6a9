#!/usr/bin/env bash
# Formats every C++ file of the repository; with --check only tells which are not formatted.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(-i)
[[ "${1:-}" == --check ]] && mode=(--dry-run --Werror)
git ls-files -z --cached --others --exclude-standard -- '*.h' '*.cpp' | xargs -0 clang-format-14 "${mode[@]}"
