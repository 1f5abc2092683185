#!/bin/sh
# The main job on the embedded data set: train, evaluate, predict. Run by `make demo`; needs no network.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
say() { printf '\n$ %s\n' "$*"; "$@"; }

say jobi-tf train --dataset world --joint --p 0.3 --run-dir "$folder/world"
say jobi-tf evaluate "$folder/world" --split test
say jobi-tf predict "$folder/world" --head Switzerland --relation official_language -k 6
say jobi-tf predict "$folder/world" --relation official_language --tail French -k 10
