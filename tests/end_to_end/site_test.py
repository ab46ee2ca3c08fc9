"""The site that launch/site.sh builds: complete, without warnings, and without anything from another host."""

import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import unittest
import urllib.parse

import harness

SOURCE = pathlib.Path(os.environ["TESSERA_SOURCE"])
# Attributes whose address a browser loads without a click.
LOADED = {("script", "src"), ("img", "src"), ("img", "srcset"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("audio", "src"), ("embed", "src"),
          ("object", "data"), ("link", "href"), ("use", "href")}


class Page(html.parser.HTMLParser):
    """Addresses that a page loads or links to, and the names that a link may go to."""

    def __init__(self, path):
        super().__init__()
        self.loaded, self.links, self.names, self.policy = [], [], set(), None
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names.update(given[key] for key in ("id", "name") if given.get(key))
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        for key, value in attributes:
            if (tag, key) in LOADED and given.get("rel") not in ("canonical", "next", "prev"):
                self.loaded.append(value)
            elif tag == "a" and key == "href":
                self.links.append(value)


def outside(address):
    return bool(re.match(r"(https?:)?//", address))


def broken(pages):
    """Links of the pages (path: Page) to files or names that do not exist."""
    missing = []
    for path, page in pages.items():
        for address in page.links + page.loaded:
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            name = urllib.parse.unquote(parts.fragment)
            if not target.is_file():
                missing.append(f"{path.name}: {address}")
            elif name and not name.startswith("__") and target in pages and name not in pages[target].names:
                missing.append(f"{path.name}: {address}: no such place in the page")
    return missing


@unittest.skipUnless(shutil.which("mkdocs"), "there is no mkdocs; launch/install_dependencies.sh docs installs it")
class Site(harness.InOwnFolder):
    def build(self):
        site = self.folder / "site"
        done = subprocess.run([SOURCE / "launch" / "site.sh", "--no-install", "--tessera", harness.program(), "--output", site], cwd=self.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:])
        return site.resolve()

    def test_the_site_is_complete_and_loads_nothing_from_another_host(self):
        site = self.build()
        pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
        self.assertEqual(broken(pages), [])
        for path, page in pages.items():
            self.assertEqual([address for address in page.loaded if outside(address)], [], path)
            self.assertRegex(page.policy or "", "^default-src 'none';", path)
        for path in site.rglob("*.css"):
            addresses = re.findall(r"(?:url\(|@import\s)[\"']?([^\"')\s]+)", path.read_text())
            self.assertEqual([address for address in addresses if outside(address)], [], path)

        for page in (SOURCE / "docs").glob("*.md"):
            self.assertTrue((site / page.with_suffix(".html").name).is_file(), page.name)
        gallery = "".join(path.read_text() for path in (site / "gallery").glob("*.html"))
        for recipe in (SOURCE / "configs").rglob("*.yaml"):
            self.assertIn(f"<code>{recipe.relative_to(SOURCE)}</code>", gallery)
        options = (site / "options.html").read_text()
        self.assertIn("&lt;extra_id_0&gt;", options)  # of a description; as a tag it would not be shown
        rows = [re.findall(r"<t[hd]>(.*?)</t[hd]>", row, re.DOTALL) for row in re.findall(r"<tr>(.*?)</tr>", options, re.DOTALL)]
        self.assertEqual([re.sub("<.*?>", "", cell) for cell in rows[0]][:3], ["option", "meaning", "only for"])
        self.assertIn(["<code>dataset_type</code>", "Dataset type."], [row[:2] for row in rows])
        told = json.loads((site / "search" / "search_index.json").read_text())
        self.assertTrue(any("llama2_7b" in entry["text"] for entry in told["docs"]))
        self.assertIn("__search", (site / "search" / "from_disk.js").read_text())

    def test_every_page_is_in_the_navigation(self):
        navigation = (SOURCE / "docs" / "mkdocs.yml").read_text()
        for page in (SOURCE / "docs").glob("*.md"):
            self.assertRegex(navigation, rf"(?m)^ +- [^:\n]+: {re.escape(page.name)}$", f"docs/mkdocs.yml: nav lacks {page.name}")


class SiteWords(harness.InOwnFolder):
    def script(self, *words):
        done = subprocess.run([SOURCE / "launch" / "site.sh", "--no-install", *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True)
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stdout

    def test_a_folder_with_files_is_not_overwritten(self):
        self.write("mine/notes.txt", "mine")
        self.assertIn("exists and is not an empty folder", self.script("--output", "mine"))
        self.assertIn("there is no program", self.script("--output", "new", "--tessera", "./nowhere"))
        self.assertIn("no option '--port'", self.script("--port"))

    def test_a_recipe_that_the_gallery_lacks_is_named(self):
        for folder in ("docs", "configs"):
            shutil.copytree(SOURCE / folder, self.folder / folder)
        self.write("configs/mine.yaml", "base: tiny.yaml\n")
        done = subprocess.run(["python3", "-B", "docs/gallery/make.py", "--tessera", harness.program(), "--output", "out"], cwd=self.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("lacks ['configs/mine.yaml']", done.stdout)


if __name__ == "__main__":
    harness.main()
