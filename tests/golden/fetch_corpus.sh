#!/usr/bin/env bash
# usage: fetch_corpus.sh DIRECTORY
# Multilingual real text from the Debian archive, once: fortunes, man pages, and the lists of package descriptions.
# It uses a package list of its own and unpacks below DIRECTORY: no root, and nothing on the machine changes.
set -euo pipefail
directory=$(mkdir -p "$1" && cd "$1" && pwd)
languages=en,de,es,fr,it,pl,pt_BR,ru,ja,zh_CN,ko,uk
packages=(fortunes fortunes-min fortunes-bg fortunes-br fortunes-cs fortunes-de fortunes-eo fortunes-es fortunes-ga
    fortunes-it fortunes-pl fortunes-ru fortunes-zh manpages-cs manpages-de manpages-el manpages-es manpages-fr
    manpages-hu manpages-it manpages-ja manpages-nl manpages-pl manpages-pt-br manpages-ro manpages-ru
    manpages-tr manpages-uk manpages-vi manpages-zh)
exec 9>"$directory/lock"
flock 9
[ ! -e "$directory/complete" ] || exit 0

mkdir -p "$directory/lists/partial" "$directory/cache/archives/partial" "$directory/packages" "$directory/files"
apt=(apt-get -qq -o Dir::State::lists="$directory/lists" -o Dir::Cache="$directory/cache" -o Debug::NoLocking=1
    -o APT::Sandbox::User="$(id -un)" -o Acquire::Languages="$languages")
"${apt[@]}" update
cd "$directory/packages"
for package in "${packages[@]}"; do
    # A package that this Debian does not have is left out; the test counts the lines that came.
    "${apt[@]}" download "$package" || echo "fetch_corpus: no package $package" >&2
done
for archive in *.deb; do
    dpkg-deb -x "$archive" "$directory/files"
done
touch "$directory/complete"
