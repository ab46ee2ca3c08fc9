"""Writes an OCI archive (OCI image format 1.0) with one layer: a root folder given as a tar file.

    oci_archive.py ROOT.tar ARCHIVE --version VERSION --date SECONDS

The same root, version and date give the same bytes. skopeo, podman, docker and apptainer read the archive."""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import pathlib
import platform
import tarfile
import tempfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
CHUNK = 1 << 20


def compressed(root, target):
    """Writes the gzip of `root` to `target`; returns the SHA-256 of what goes in."""
    digest = hashlib.sha256()
    with root.open("rb") as source, gzip.GzipFile(filename="", mode="wb", fileobj=target, compresslevel=6, mtime=0) as out:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
    return digest.hexdigest()


def digest_of(file):
    file.seek(0)
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


class Archive:
    def __init__(self, tar, date):
        self.tar, self.date = tar, date

    def add(self, name, size, file):
        entry = tarfile.TarInfo(name)
        entry.size, entry.mtime, entry.mode = size, self.date, 0o644
        self.tar.addfile(entry, file)

    def add_json(self, name, content):
        """Returns size and digest; with name None the file is a blob, named by its digest."""
        data = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        self.add(name or f"blobs/sha256/{digest}", len(data), io.BytesIO(data))
        return {"size": len(data), "digest": f"sha256:{digest}"}


def write(root, target, version, date):
    created = datetime.datetime.fromtimestamp(date, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"org.opencontainers.image.title": "tessera", "org.opencontainers.image.version": version}
    platform_of = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    kind = "application/vnd.oci.image."
    with tempfile.TemporaryFile(dir=target.parent) as layer, target.open("wb") as out, \
            tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        diff = compressed(root, layer)
        size, digest = layer.tell(), digest_of(layer)
        archive = Archive(tar, date)
        archive.add_json("oci-layout", {"imageLayoutVersion": "1.0.0"})
        layer.seek(0)
        archive.add(f"blobs/sha256/{digest}", size, layer)
        config = archive.add_json(None, {
            **platform_of, "created": created,
            "config": {"User": "tessera", "WorkingDir": "/var/lib/tessera", "Cmd": ["tessera", "--help"], "Labels": labels,
                       "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/var/lib/tessera"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{diff}"]},
            "history": [{"created": created, "created_by": "launch/package.sh --oci"}]})
        manifest = archive.add_json(None, {
            "schemaVersion": 2, "mediaType": kind + "manifest.v1+json", "config": {"mediaType": kind + "config.v1+json", **config},
            "layers": [{"mediaType": kind + "layer.v1.tar+gzip", "size": size, "digest": f"sha256:{digest}"}], "annotations": labels})
        archive.add_json("index.json", {
            "schemaVersion": 2, "mediaType": kind + "index.v1+json",
            "manifests": [{"mediaType": kind + "manifest.v1+json", **manifest, "platform": platform_of,
                           "annotations": {"org.opencontainers.image.ref.name": version}}]})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("archive", type=pathlib.Path)
    parser.add_argument("--version", required=True)
    parser.add_argument("--date", type=int, required=True, help="seconds since 1970")
    words = parser.parse_args()
    write(words.root, words.archive, words.version, words.date)


if __name__ == "__main__":
    main()
