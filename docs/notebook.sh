#!/bin/sh
# Runs examples/tutorial.py in a new folder and keeps it with its outputs as a notebook. Run by `make notebook`.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
jupytext --quiet --to ipynb --output "$folder/tutorial.ipynb" examples/tutorial.py
(cd "$folder" && TF_CPP_MIN_LOG_LEVEL=3 jupyter nbconvert --to notebook --execute --inplace tutorial.ipynb)
cp "$folder/tutorial.ipynb" docs/tutorial.ipynb
