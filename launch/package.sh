#!/usr/bin/env bash
# Makes the Debian packages tessera, libtessera-dev and tessera-doc, and an image for containers.
#
#   launch/package.sh [--deb] [--oci] [--output DIR] [--site DIR] [--mirror LINE] [--no-install]
#
#   --deb          the packages (default)
#   --oci          the packages, and DIR/tessera_VERSION_oci.tar: an OCI archive of Debian 12 with the package tessera (root only)
#   --output DIR   folder of the results (default: build/packages)
#   --site DIR     folder of the documentation as HTML, which becomes a part of tessera-doc
#   --mirror LINE  where the packages of the image's Debian come from, as "deb URL bookworm main" (default: that of mmdebstrap)
#   --no-install   do not install missing Debian packages
#
# The same commit gives the same bytes: files have the date of the commit, or SOURCE_DATE_EPOCH if it is set. The image also
# depends on the state of the mirror. docs/installing.md describes the results.
set -euo pipefail
source "$(dirname "$0")/common.sh"

oci=false output=build/packages site='' mirror='' install=true
while (($#)); do
  case "$1" in
    --deb) ;;
    --oci) oci=true ;;
    --output) output=$(path_of "$@"); shift ;;
    --site) site=$(path_of "$@"); shift ;;
    --mirror) mirror=$(value_of "$@"); shift ;;
    --no-install) install=false ;;
    -h | --help) show_help; exit ;;
    *) stop "no option '$1'; see --help" 2 ;;
  esac
  shift
done
[[ -z $site || -d $site ]] || stop "--site: there is no folder '$site'" 2
if $oci && ((EUID != 0)); then stop "--oci needs root: it installs packages into a folder" 2; fi
if $install; then launch/install_dependencies.sh build package; fi
if [[ -z ${SOURCE_DATE_EPOCH:-} ]]; then
  SOURCE_DATE_EPOCH=$(git_here log -1 --format=%ct 2>/dev/null) || SOURCE_DATE_EPOCH=$(stat -c %Y CMakeLists.txt)
fi
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
mkdir -p "$output"
output=$(realpath "$output")

build package || stop "the build failed"
folder=build/package
quietly "$folder/site.log" cmake -S . -B "$folder" -DTESSERA_SITE="$site" || stop "cmake failed"
rm -rf "$folder/deb" "$output"/{tessera,libtessera-dev,tessera-doc}_*.deb
quietly "$folder/cpack.log" cpack --config "$folder/CPackConfig.cmake" -B "$folder/deb" || stop "cpack failed"
mv "$folder"/deb/*.deb "$output"
package=$(echo "$output"/tessera_*.deb)
version=$(dpkg-deb --field "$package" Version)
for file in "$output"/{tessera,libtessera-dev,tessera-doc}_*.deb; do say "made $file ($(($(stat -c %s "$file") / 1024)) KiB)"; done
$oci || exit 0

# The same steps as in launch/Containerfile, without a daemon or an image to start from.
archive=$output/tessera_${version}_oci.tar root=$folder/root.tar
# mmdebstrap divides its hooks at blanks, which the path of the output may have.
cp "$package" "$folder"
quietly "$folder/mmdebstrap.log" mmdebstrap --variant=minbase --format=tar --include=ca-certificates \
  --customize-hook="copy-in $folder/${package##*/} launch/package/image_root.sh /tmp" \
  --customize-hook='chroot "$1" /tmp/image_root.sh' \
  bookworm "$root" ${mirror:+"$mirror"} || stop "mmdebstrap failed"
python3 -B launch/package/oci_archive.py "$root" "$archive" --version "$version" --date "$SOURCE_DATE_EPOCH"
rm "$root" "$folder/${package##*/}"
say "made $archive ($(($(stat -c %s "$archive") / 1048576)) MiB)"
