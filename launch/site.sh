#!/usr/bin/env bash
# Builds the documentation with its gallery as HTML pages that need no network: they open from a disk or from any web server.
#
#   launch/site.sh [--output DIR] [--tessera PROGRAM] [--no-install]
#
#   --output DIR       folder of the site, which must not exist or be empty (default: build/site, which is replaced)
#   --tessera PROGRAM  the program that makes the runs of the gallery (default: the release build's, which is built)
#   --no-install       do not install missing Debian packages
#
# A warning of mkdocs, such as a link to a page that does not exist, is an error. Nothing is written into the source tree but below build/.
set -euo pipefail
source "$(dirname "$0")/common.sh"

output='' tessera='' install=true
while (($#)); do
  case "$1" in
    --output) output=$(path_of "$@"); shift ;;
    --tessera) tessera=$(value_of "$@"); shift ;;
    --no-install) install=false ;;
    -h | --help) show_help; exit ;;
    *) stop "no option '$1'; see --help" 2 ;;
  esac
  shift
done
if [[ -n $output ]]; then
  [[ ! -e $output || (-d $output && -z $(ls -A "$output")) ]] || stop "--output: '$output' exists and is not an empty folder; name another one, or delete it" 2
else
  output=$PWD/build/site
  rm -rf "$output"
fi
if [[ -n $tessera ]]; then
  named=$tessera
  tessera=$(cd "$started" && realpath "$(command -v "$named")" 2>/dev/null) || stop "--tessera: there is no program '$named'; give its path" 2
fi

if $install; then launch/install_dependencies.sh docs; fi
command -v mkdocs >/dev/null || stop "there is no mkdocs; install it with: launch/install_dependencies.sh docs"
if [[ -z $tessera ]]; then
  build release tessera || stop "the build failed"
  tessera=$PWD/build/release/framework/tessera
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/pages"
# Debian's Python: mkdocs and its theme are modules of it.
export PYTHONDONTWRITEBYTECODE=1
/usr/bin/python3 docs/gallery/make.py --tessera "$tessera" --output "$work/pages/gallery"
/usr/bin/python3 docs/theme/site.py prepare "$work"
quietly "$work/mkdocs.log" mkdocs build --strict --quiet --config-file "$work/mkdocs.yml" --site-dir "$work/site" || stop "mkdocs failed"
/usr/bin/python3 docs/theme/site.py finish "$work/site"
mkdir -p "$output"
cp -r "$work/site/." "$output"
say "the site: $output/index.html"
