"""What `cmake --install` installs; the packages and the image of launch/package.sh, in a bare Debian 12 (label package: launch/test.sh --label package)."""

import functools
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import unittest

import harness

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
# Folder with the results of `launch/package.sh --oci`.
PACKAGES = pathlib.Path(os.environ.get("TESSERA_PACKAGES") or "/nonexistent")

# Every file of an installation is of one of these kinds; every kind has files.
KINDS = [r"bin/(tessera|tsrun)", r"lib/([^/]+/)?tessera/tsrun_loopback\.so", r"lib/([^/]+/)?tessera/libtessera_\w+\.a",
         r"lib/([^/]+/)?cmake/tessera/tessera[\w-]+\.cmake", r"include/tessera/framework/[\w/-]+\.h",
         r"share/tessera/(configs|mappings)/.+\.(yaml|md|jinja|json|txt)", r"share/tessera/version", r"share/man/man1/(tessera(-\w+)?|tsrun)\.1\.gz",
         r"share/man/man5/tessera-recipe\.5\.gz", r"share/bash-completion/completions/(tessera|tsrun)",
         r"share/zsh/vendor-completions/_(tessera|tsrun)", r"share/fish/vendor_completions\.d/(tessera|tsrun)\.fish",
         r"share/doc/(tessera|libtessera-dev|tessera-doc)/copyright", r"share/doc/tessera-doc/.+\.(md|json|yml|svg|png|html|css|js)"]


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


class Installation(harness.InOwnFolder):
    @functools.cached_property
    def prefix(self):
        self.command("cmake", "--install", os.environ["TESSERA_BUILD"], "--prefix", self.folder / "prefix")
        return self.folder / "prefix"

    def page(self, name):
        return gzip.decompress((self.prefix / "share/man" / name).read_bytes()).decode()

    def commands(self):
        """The commands that --help lists."""
        told = self.tessera("--help")
        return re.findall(r"^  ([a-z]+) ", told[told.index("Subcommands:"):], re.MULTILINE)

    def test_every_file_is_of_a_known_kind_and_no_kind_is_missing(self):
        unknown = files_below(self.prefix)
        for kind in KINDS:
            found = {name for name in unknown if re.fullmatch(kind, name)}
            self.assertTrue(found, kind)
            unknown -= found
        self.assertEqual(unknown, set())
        for name in ("configs", "mappings"):
            self.assertEqual(files_below(self.prefix / "share/tessera" / name), files_below(SOURCE / name))

    def test_every_command_has_a_manual_page_and_every_page_is_installed(self):
        commands = self.commands()
        self.assertGreater(len(commands), 14)
        pages = files_below(self.prefix / "share/man")
        self.assertEqual(pages, {f"man1/tessera-{name}.1.gz" for name in commands} |
                         {"man1/tessera.1.gz", "man1/tsrun.1.gz", "man5/tessera-recipe.5.gz"})
        for name in pages:
            self.assertIn("\n.SH NAME\n", self.page(name))
        self.assertIn("\\fB\\-\\-set\\fR", self.page("man1/tessera-train.1.gz"))
        self.assertIn(".SS tessera data preprocess", self.page("man1/tessera-data.1.gz"))
        self.assertIn("\\fBnum_layers\\fR", self.page("man5/tessera-recipe.5.gz"))

    def test_the_same_program_writes_the_same_pages(self):
        for name in ("one", "two"):
            self.tessera("man", "--output-dir", name)
        self.assertEqual(files_below(self.folder / "one"), files_below(self.folder / "two"))
        for name in files_below(self.folder / "one"):
            self.assertEqual((self.folder / "one" / name).read_bytes(), (self.folder / "two" / name).read_bytes())

    def test_a_page_that_is_not_there_is_named(self):
        told = self.tessera("man", "trian", code=2)
        self.assertIn("there is no page 'trian'; did you mean 'train'?", told)
        self.assertIn("recipe", told)

    def test_installed_completion_is_what_the_programs_print(self):
        tsrun = self.prefix / "bin/tsrun"
        for shell, name in (("bash", "bash-completion/completions/{}"), ("zsh", "zsh/vendor-completions/_{}"),
                            ("fish", "fish/vendor_completions.d/{}.fish")):
            share = self.prefix / "share"
            self.assertEqual((share / name.format("tessera")).read_text(), self.command(self.prefix / "bin/tessera", "completion", shell))
            self.assertEqual((share / name.format("tsrun")).read_text(), self.command(tsrun, "--completion", shell))

    def test_bash_loads_the_completion_of_the_program_behind_tsrun(self):
        folder = self.prefix / "share/bash-completion/completions"
        script = f"""
            _completion_loader() {{ source {folder}/$1; return 124; }}
            source {folder}/tsrun; COMP_LINE=$1 COMP_POINT=${{#1}}; _tsrun; printf '%s\\n' "${{COMPREPLY[@]}}" """
        told = self.command("bash", "--norc", "-c", script, "bash", "tsrun --worker_num 2 tessera checkpoint ver")
        self.assertEqual(told.split(), ["verify"])

    @unittest.skipUnless(shutil.which("zsh"), "there is no zsh")
    def test_zsh_completes_at_the_first_call_of_an_installed_function(self):
        for program, line, words in (("tessera", "tessera checkpoint ver", ["verify"]), ("tsrun", "tsrun --local_w", ["--local_worker_num"])):
            script = f"""
                compadd() {{ shift; for word in $@; do [[ $word == $words[-1]* ]] && print -r -- $word; done; return 0 }}
                _files() {{ }}
                fpath=({self.prefix}/share/zsh/vendor-completions $fpath); autoload -Uz _{program}
                words=({line}) CURRENT=$#words; _{program}"""
            self.assertEqual(self.command("zsh", "-f", "-c", script).split(), words)

    def test_the_version_file_names_the_commit_of_the_source_tree(self):
        told = (self.prefix / "share/tessera/version").read_text().split()
        self.assertEqual(self.tessera("--version").split()[1], told[0])
        done = subprocess.run(["git", "-C", SOURCE, "rev-parse", "HEAD"], text=True, capture_output=True)
        if done.returncode == 0:
            self.assertEqual(told[1].removesuffix("-modified"), done.stdout.strip())
        else:
            self.assertEqual(len(told), 1)


# Mounts what a container has, and runs the script ($2) as the user $3 in the root $1.
IN_ROOT = """
set -e
mount -t proc proc "$1/proc"; mount --rbind /sys "$1/sys"
mount -t tmpfs tmpfs "$1/dev"; mkdir "$1/dev/shm" "$1/dev/pts"; mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"; ln -s pts/ptmx "$1/dev/ptmx"
for name in null zero full random urandom tty; do touch "$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
ln -s /proc/self/fd "$1/dev/fd"
exec chroot --userspec="$3" "$1" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$4" \\
  DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 sh -ec "$2"
"""

TRAIN = """
cd "$HOME"
settings="--set training_config.eval_iters=0 --set training_config.training_iters=20 --set model_config.hidden_size=32"
tessera train /usr/share/tessera/configs/tiny.yaml $settings --set training_config.output_dir=one
tsrun --worker_num 2 --local_worker_num 2 tessera train /usr/share/tessera/configs/tiny.yaml $settings --set training_config.output_dir=two
"""


@unittest.skipUnless(list(PACKAGES.glob("tessera_*.deb")), "TESSERA_PACKAGES names no folder with packages: launch/test.sh --label package makes them")
@unittest.skipUnless(os.geteuid() == 0, "only root can change into another root folder")
class Packages(unittest.TestCase):
    """Each test has a root of its own. It needs the network for the packages of Debian."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp(prefix="tessera.packages."))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)

    def root_from(self, tar):
        root = pathlib.Path(tempfile.mkdtemp(dir=self.scratch))
        root.chmod(0o755)
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        subprocess.run(["tar", "-C", root, "--numeric-owner", "-xpf", tar, "--exclude=./dev/*"], check=True, timeout=280)
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        return root

    def bare_root(self):
        """Debian 12 with apt and nothing that is not essential, kept beside the packages."""
        tar = PACKAGES / "bare.tar"
        if not tar.exists():
            if not shutil.which("mmdebstrap"):
                self.skipTest("needs mmdebstrap")
            part = PACKAGES / "bare.part.tar"
            subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "bookworm", part], check=True, timeout=600)
            part.rename(tar)
        root = self.root_from(tar)
        for path in PACKAGES.glob("*.deb"):
            shutil.copy(path, root / "tmp")
        return root

    def run_in(self, root, script, user="0:0", home="/root", timeout=900):
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", IN_ROOT, "sh", root, script, user, home],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        self.assertEqual(done.returncode, 0, f"{script}\n{done.stdout[-8000:]}")
        return done.stdout

    def assert_trained(self, folder):
        for run in ("one", "two"):
            losses = [line["loss"] for line in map(json.loads, (folder / run / "metrics.jsonl").read_text().splitlines()) if "loss" in line]
            self.assertLess(losses[-1], losses[0], run)

    def system_files(self, root):
        """All files but those in which dpkg, apt and ldconfig keep their state, and Python's caches."""
        return {name for name in files_below(root) if not re.match(r"(tmp|root|proc|sys|dev|var/(lib/(dpkg|apt|systemd)|log|cache))/|etc/(ld\.so\.cache|.*-)$", name)}

    def test_a_bare_debian_installs_the_package_and_trains_on_one_and_two_ranks(self):
        root = self.bare_root()
        self.run_in(root, "apt-get -q update")
        began = time.monotonic()
        self.run_in(root, "apt-get -q -y --no-install-recommends install /tmp/tessera_*.deb")
        installed = time.monotonic()
        self.run_in(root, TRAIN)
        print(f"installed in {installed - began:.1f} s, trained twice in {time.monotonic() - installed:.1f} s")
        self.assert_trained(root / "root")
        told = self.run_in(root, 'bash --norc -c \'source /usr/share/bash-completion/completions/tessera; COMP_LINE="tessera che"; '
                                 'COMP_POINT=11; _tessera; echo "${COMPREPLY[@]}"\'; zcat /usr/share/man/man1/tessera-train.1.gz; ldd /usr/bin/tessera')
        self.assertIn("check checkpoint\n", told)
        self.assertIn(".TH TESSERA", told)
        self.assertNotIn("not found", told)

    def test_an_upgrade_keeps_the_program_and_purge_leaves_nothing(self):
        root = self.bare_root()
        self.run_in(root, "apt-get -q update; apt-get -q -y --no-install-recommends install openmpi-bin")
        self.run_in(root, "apt-get -q -y --no-install-recommends install $(dpkg-deb -f /tmp/tessera_*.deb Depends | sed 's/([^)]*)//g; s/,//g')")
        before = self.system_files(root)
        self.run_in(root, """
            dpkg -i /tmp/tessera_*.deb /tmp/tessera-doc_*.deb
            dpkg-deb -R /tmp/tessera_*.deb /tmp/next; sed -i 's/^Version: .*/Version: 9.0-1/' /tmp/next/DEBIAN/control
            dpkg-deb -b /tmp/next /tmp/next.deb; dpkg -i /tmp/next.deb; tessera --version""")
        told = self.run_in(root, "dpkg-query --show --showformat '${Version} ${Status}' tessera")
        self.assertEqual(told, "9.0-1 install ok installed")
        self.assertIn("usr/share/doc/tessera-doc/extending.md", self.system_files(root))
        self.run_in(root, "apt-get -q -y purge tessera tessera-doc")
        self.assertEqual(self.system_files(root) - before, set())
        self.assertEqual([name for name in files_below(root / "var") if "tessera" in name], [])

    def test_the_dev_package_builds_the_example_of_the_page(self):
        root = self.bare_root()
        self.run_in(root, "apt-get -q update; apt-get -q -y --no-install-recommends install /tmp/libtessera-dev_*.deb cmake g++ ninja-build openmpi-bin")
        example = root / "root/example"
        example.mkdir()
        page = (SOURCE / "docs/extending.md").read_text()
        for name, words in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            (example / name).write_text(words)
        told = self.run_in(root, "cd ~/example; cmake -S . -B build -G Ninja; cmake --build build; build/mine check mine.yaml; build/mine train mine.yaml")
        self.assertIn("iteration", told)

    def test_the_packages_have_the_same_bytes_when_they_are_made_again(self):
        again = self.scratch / "again"
        subprocess.run([SOURCE / "launch/package.sh", "--no-install", "--output", again], check=True, stdout=subprocess.DEVNULL, timeout=900,
                       umask=0o077)
        for path in PACKAGES.glob("*.deb"):
            self.assertEqual(hashlib.sha256(path.read_bytes()).hexdigest(), hashlib.sha256((again / path.name).read_bytes()).hexdigest(), path.name)

    @unittest.skipUnless(shutil.which("lintian"), "there is no lintian")
    def test_lintian_finds_no_error_and_no_warning(self):
        done = subprocess.run(["lintian", "--fail-on", "error,warning", *sorted(map(str, PACKAGES.glob("*.deb")))], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_image_is_an_oci_archive_whose_root_trains_and_serves_ssh_without_root(self):
        blobs = {}
        layer = self.scratch / "layer.tar"
        with tarfile.open(next(PACKAGES.glob("tessera_*_oci.tar"))) as tar:
            for entry in tar:
                content = tar.extractfile(entry).read()
                blobs[entry.name] = content
                if entry.name.startswith("blobs/sha256/"):
                    self.assertEqual(hashlib.sha256(content).hexdigest(), entry.name.split("/")[2])
        blob = lambda described: blobs["blobs/" + described["digest"].replace(":", "/")]
        self.assertEqual(json.loads(blobs["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        manifest = json.loads(blob(json.loads(blobs["index.json"])["manifests"][0]))
        config = json.loads(blob(manifest["config"]))
        content = gzip.GzipFile(fileobj=io.BytesIO(blob(manifest["layers"][0])))
        with layer.open("wb") as out:
            shutil.copyfileobj(content, out)
        self.assertEqual(config["rootfs"]["diff_ids"], ["sha256:" + hashlib.sha256(layer.read_bytes()).hexdigest()])
        root = self.root_from(layer)
        layer.unlink()
        self.assertEqual(list((root / "etc/ssh").glob("ssh_host_*")), [])
        user = re.search(rf"^{config['config']['User']}:[^:]*:(\d+):(\d+):[^:]*:([^:]*):", (root / "etc/passwd").read_text(), re.MULTILINE)
        self.assertNotEqual(user[1], "0")
        as_user = {"user": f"{user[1]}:{user[2]}", "home": user[3]}
        self.run_in(root, TRAIN, **as_user)
        self.assert_trained(root / user[3][1:])
        # The operator mounts the key of a job in ~/.ssh. A worker is an SSH server; the launcher's mpirun connects to it.
        told = self.run_in(root, """
            mkdir ~/.ssh; ssh-keygen -q -t ecdsa -N '' -f ~/.ssh/id_rsa; cp ~/.ssh/id_rsa.pub ~/.ssh/authorized_keys
            /usr/sbin/sshd -t; /usr/sbin/sshd -De & until ssh 127.0.0.1 true; do sleep 0.1; done
            ssh 127.0.0.1 tessera --version""", **as_user)
        self.assertIn("tessera ", told)


if __name__ == "__main__":
    harness.main()
