"""Pages as the tests read them: their fenced blocks, by language, the files among them, and the commands they show."""

import re

from tests import ROOT

FILES = "docs/files.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPT = re.compile(r"^\w+\$ ")
PROGRAMS = ("fsl-async", "make", "pytest", "python", "python3", "setsid", ".venv/bin/")


def fenced(text: str) -> list[tuple[str, str]]:
    """A page's fenced blocks: language and content."""
    return FENCE.findall(text)


def blocks(page: str, language: str) -> list[str]:
    """A page's fenced blocks of one language, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [content for found, content in fenced(text) if found == language]


def anchors(text: str) -> set[str]:
    """What a page's headings are called in links; of two that are alike, the first."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def file(name: str) -> str:
    """The block of docs/files.md that begins with `# file: name`."""
    (content,) = [block for block in blocks(FILES, "toml") if block.startswith(f"# file: {name}\n")]
    return content


def commands() -> list[tuple[list[str], str]]:
    """The commands of docs/files.md: words, and the comment behind them."""
    lines = [line for block in blocks(FILES, "sh") for line in block.splitlines() if line]
    return [(line.partition("#")[0].split(), line.partition("#")[2].strip()) for line in lines]


def shown_commands(text: str) -> list[str]:
    """Every command that a page shows in a block: typed at a prompt, in a shell block, or on an indented line."""
    shown: list[str] = []
    for language, content in fenced(text):
        for line in re.sub(r"\\\n\s*", "", content).splitlines():
            if language == "console" and PROMPT.match(line):
                shown.append(PROMPT.sub("", line))
            elif line.strip() and (language == "sh" or (not language and line.startswith(PROGRAMS))):
                shown.append(line)
    indented = re.findall(r"^ {4}(\S.*)$", FENCE.sub("", text), re.MULTILINE)
    return [_without_comment(line) for line in [*shown, *(line for line in indented if line.startswith(PROGRAMS))]]


def _without_comment(line: str) -> str:
    return re.sub(r"\s+# .*$", "", line)
