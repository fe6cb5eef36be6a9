#!/usr/bin/env python3
"""Compiles every source that needs SystemC against other headers of it, without making objects.

usage: scripts/check_systemc3.py HEADERS [PATH...]

HEADERS is the folder with `systemc` and `tlm` of another version, e.g. usr/include of Debian 13's libsystemc-dev,
unpacked with `dpkg-deb -x`. The commands are those of the preset `dev`, which has to be built. PATH: only sources below.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def compile_one(entry, headers):
    words = [w for w in shlex.split(entry["command"]) if not w.endswith("ccache")]
    command, skip = [], False
    for word in words:
        if skip or word in ("-o", "-MF", "-MT"):
            skip = not skip
        elif word not in ("-c", "-MD", "-Werror"):
            command.append(word)
    command[1:1] = ["-isystem", headers, "-fsyntax-only"]
    result = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True)
    return entry["file"], result.stderr if result.returncode or "warning:" in result.stderr else ""


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    headers = str(pathlib.Path(sys.argv[1]).resolve())
    if not os.path.exists(headers + "/systemc"):
        sys.exit(f"check_systemc3: no file 'systemc' in {headers}")
    below = [str(root / p) for p in sys.argv[2:]] or [str(root)]
    entries = [e for e in json.loads((root / "build/dev/compile_commands.json").read_text())
               if "SC_INCLUDE_DYNAMIC_PROCESSES" in e["command"] and e["file"].startswith(tuple(below))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bad = [(f, text) for f, text in pool.map(lambda e: compile_one(e, headers), entries) if text]
    for file, text in bad:
        print(f"{file}:\n{text}")
    print(f"{len(entries)} sources, {len(bad)} with errors or warnings")
    sys.exit(bool(bad) or not entries)


if __name__ == "__main__":
    main()
