#!/bin/sh
# Fetch the training data with apt into a separate folder: package lists with the English
# long descriptions, and WordNet. The machine's own lists stay unchanged.
# usage: fetch.sh FOLDER
set -eu
root=$(mkdir -p "$1" && cd "$1" && pwd)
mkdir -p "$root/lists/partial" "$root/cache/archives/partial"
apt() {
    apt-get -q -o Dir::State::Lists="$root/lists" -o Dir::Cache="$root/cache" \
        -o Acquire::Languages=en "$@"
}
apt update
cd "$root"
apt download wordnet-base
dpkg -x wordnet-base_*.deb wordnet
