"""Each link of a site leads to a file of it, and to an element that has the id: site.py FOLDER"""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list) -> None:
        named = dict(attrs)
        for name in ("id", "name"):
            if named.get(name) and (name == "id" or tag == "a"):
                self.ids.add(named[name])
        for name in ("href", "src"):
            if named.get(name):
                self.links.append(named[name])


def main(folder: Path) -> int:
    # 404.html is shown for any path, and its links begin at the root of a server.
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html") if path.name != "404.html"}
    wrong, count = set(), 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            count += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            place = path.relative_to(folder.resolve())
            if not target.is_file():
                wrong.add(f"{place} links to {link}, which is not in the site")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                wrong.add(f"{place} links to {link}, which has no such id")
    for line in sorted(wrong):
        print(f"site.py: {line}", file=sys.stderr)
    if len(pages) < 50 or count < 500:
        print(f"site.py: hardly any pages: {len(pages)} with {count} links", file=sys.stderr)
        return 1
    print(f"docs: {len(pages)} pages, {count} links of the site")
    return 1 if wrong else 0


sys.exit(main(Path(sys.argv[1])))
