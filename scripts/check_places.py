#!/usr/bin/env python3
"""Checks that errors of public functions name the line of the call. Usage: check_places.py [ROOT]

Many public functions, and the constructors of all layers, take the line of their call: as `const Arg&`, Operand or
std::source_location. The messages of their errors end with that line. call() adds it to the checks of an operator's record. A function with checks of its
own has two ways to add it:

  * it rethrows its errors by detail::rethrow_at(), usually in the handler of a function-try-block;
  * each MX_CHECK has detail::called_at() or detail::place_of() among its parts.

The checks of a function are those in its body, and those in the functions that it calls and that are not such
functions themselves: functions of the same file, and free functions of others. A function is public if a header
declares it outside of `private:` and of namespace detail; headers whose first comment says "Internal" do not count.
Checks of functions that are called through pointers and of operators such as a[i] are not seen.

Prints one line per violation, "path:line: what is wrong", and exits 1 if there is any.
"""

import os
import re
import sys

FOLDERS = ("ndarray", "operators", "executor", "optim", "nn")
SKIPPED = ("/kernels/", "/cuda/", "/samples/")

# Names of functions whose errors name the line in another way, or that a program cannot cause: launch() and
# call_composed() name it, functions() is complete in every program, and the others are names of several functions.
ASIDE = {"functions", "to_string", "launch", "new_block", "apply", "call_composed"}

# Namespaces whose functions a program does not call.
INTERNAL_SPACES = {"(anonymous)", "detail", "kernels", "cuda"}

INTERNAL = re.compile(r"\bInternal\b")
TAKES_PLACE = re.compile(r"\bconst Arg\s*&|\b(?:Operand|NumberArg)\b|\bstd::source_location\b|\bvector<Arg>"
                         r"|\bspan<const Arg>")
# Also modules: Module::run() and named() add the line of the module's call.
RETHROWS = re.compile(r"\brethrow_at(?:_call)?\s*\(|\bnamed\s*\(|\breturn run\s*\(")
CHECK = re.compile(r"\bMX_CHECK\s*\(|\bthrow\s+\w*(?:::\w+)*\s*[({]")
PLACE = re.compile(r"\b(?:called_at|place_of)\s*\(|\bplace\b")
CALL = re.compile(r"(?<![\w.>])(?:\w+::)*(\w+)\s*(?:<[\w:, ]*>)?\s*\(")

# Where the layers are.
MODULES = re.compile(r"nn/(?:generation/)?\w+\.(?:h|cc)$")

# Comments, literals and directives.
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
                      r'|^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)
NAME = re.compile(r"((?:[\w~]+(?:<[^<>()]*>)?::)*)(operator\s*[^\s\w(]+|operator\s+\w+|~?\w+)\s*$")
NAMESPACE = re.compile(r"(?:inline\s+)?namespace\s*([\w:]*)$")
TEMPLATE = re.compile(r"^\s*template\s*<.*?>\s*(?=[\w\[])", re.DOTALL)
CLASS_TEMPLATE = re.compile(r"^\s*template\s*<.*>\s*(?=class|struct)", re.DOTALL)
CLASS = re.compile(r"\b(class|struct|union)\s+(?:\w+\s+)*?((?:\w+::)*\w+)\s*(?:final\s*)?(?::[^:].*)?$", re.DOTALL)
LABEL = re.compile(r"\b(public|protected|private)\s*:$")
INITIALISERS = re.compile(r"\)\s*(?:try\s*)?:", re.DOTALL)
NEXT_INITIALISER = re.compile(r"(?:\s*,\s*[\w:<>]+)?\s*(?=\{)|\s*,\s*[\w:<>]+\s*(?=\()")
HANDLER = re.compile(r"\s*catch\s*(?=\()")
NO_CALLS = {"if", "for", "while", "switch", "return", "sizeof", "catch", "throw", "MX_CHECK", "decltype", "alignof",
            "static_assert", "requires", "defined", "noexcept", "explicit"}


def code_of(text):
    """Returns the text with comments, directives and the contents of literals as blanks. Positions stay the same."""

    def blank(match):
        found = match.group(0)
        blanks = re.sub(r"[^\n]", " ", found)
        return found[0] + blanks[1:-1] + found[-1] if found[0] in "\"'R" else blanks

    return NOT_CODE.sub(blank, text)


def closing(text, at):
    """Returns the position behind the bracket that closes the one at `at`."""
    opens, closes = text[at], ")" if text[at] == "(" else "}"
    depth = 0
    for i in range(at, len(text)):
        if text[i] == opens:
            depth += 1
        elif text[i] == closes:
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def signature_of(head):
    """Returns the classes, the name and the parameters of a function from the text before its body; None for others."""
    head = TEMPLATE.sub("", head)
    at = head.find("(")
    while at >= 0:
        match = NAME.search(head[:at])
        end = closing(head, at)
        if match is None or match.group(2) in NO_CALLS:
            at = head.find("(", end)
        elif match.group(2) == "operator":  # operator()
            return match.group(1), "operator()", head[end:]
        else:
            return match.group(1), match.group(2), head[at:end]
    return None


class Function:
    """A definition. `head`: the text before the body."""

    def __init__(self, path, line, hidden, owner, signature, head, body):
        self.path, self.line, self.hidden = path, line, hidden
        self.owner, self.name = owner + signature[0], signature[1]
        self.public = False  # set when all headers are known
        self.takes_place = TAKES_PLACE.search(signature[2]) is not None
        # The constructors of the layers must take the line; those of data sets and metrics do not yet.
        self.makes_module = MODULES.match(path) is not None and self.owner.endswith(self.name + "::")
        text = head[head.find(signature[2]) + len(signature[2]):] + body  # with initialisers
        self.rethrows = RETHROWS.search(text) is not None
        self.checks = any(not PLACE.search(text[m.start():closing(text, m.end() - 1)]) for m in CHECK.finditer(text))
        self.calls = set(CALL.findall(text)) - NO_CALLS


class Scanner:
    """Finds the functions of one file."""

    def __init__(self, path, text, declared):
        comment = re.match(r"(?://[^\n]*\n)*", text).group(0)
        self.path, self.text, self.declared = path, code_of(text), declared
        self.for_users = path.endswith(".h") and "/detail/" not in path and not INTERNAL.search(comment)
        self.functions = []
        self.scan(0, len(self.text), frozenset(), "", True)

    def declare(self, owner, head, visible):
        signature = signature_of(head) if self.for_users and visible else None
        if signature is not None:
            self.declared.add((owner + signature[0], signature[1]))

    def end_of_function(self, head, begin):
        """Returns the position behind a function whose first block, its body or an initialiser, begins at `begin`."""
        end = closing(self.text, begin)
        while INITIALISERS.search(head) and (more := NEXT_INITIALISER.match(self.text, end)):
            end = closing(self.text, more.end())
        while handler := HANDLER.match(self.text, end):
            end = closing(self.text, self.text.find("{", closing(self.text, handler.end())))
        return end

    def scan(self, begin, end, hidden, owner, access):
        """Scans a namespace or a class. hidden: what hides it from users, see INTERNAL_SPACES; owner: its name if it
        is a class; access: whether its first part is public."""
        text = self.text
        start = i = begin  # start: of the current declaration
        while i < end:
            if text[i] == "(":
                i = closing(text, i)
                continue
            if owner and text[i] == ":" and (label := LABEL.search(text, start, i + 1)):
                access = label.group(1) == "public"
                start = i + 1
            elif text[i] == ";":
                self.declare(owner, text[start:i], access and not hidden)
                start = i + 1
            elif text[i] == "}":
                start = i + 1
            elif text[i] == "{":
                i = start = self.block(start, i, hidden, owner, access)
                continue
            i += 1

    def block(self, start, at, hidden, owner, access):
        """Handles the block at `at` of the declaration that begins at `start`. Returns the position behind it."""
        text = self.text
        end = closing(text, at)
        head = text[start:at]
        if space := NAMESPACE.match(head.strip()):
            names = set((space.group(1) or "(anonymous)").split("::"))
            self.scan(at + 1, end - 1, hidden | (names & INTERNAL_SPACES), owner, access)
        elif "(" not in head:
            if kind := CLASS.search(CLASS_TEMPLATE.sub("", head.strip())):
                hidden = hidden if access else hidden | {"private"}
                self.scan(at + 1, end - 1, hidden, owner + kind.group(2) + "::", kind.group(1) != "class")
        elif (signature := signature_of(head)) is not None:
            self.declare(owner, head, access and not hidden)
            end = self.end_of_function(head, at)
            line = text.count("\n", 0, start + len(head) - len(head.lstrip())) + 1
            self.functions.append(Function(self.path, line, hidden, owner, signature, head, text[at:end]))
        return end


def sources(root):
    for folder in FOLDERS:
        for base, _, files in os.walk(os.path.join(root, folder)):
            for name in sorted(files):
                path = os.path.relpath(os.path.join(base, name), root).replace(os.sep, "/")
                if name.endswith((".h", ".cc")) and not any(part in path for part in SKIPPED):
                    yield path


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    functions, declared, by_name = [], set(), {}
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            functions += Scanner(path, file.read(), declared).functions
    for f in functions:
        f.public = (f.owner, f.name) in declared and not f.hidden
        by_name.setdefault(f.name, []).append(f)

    def called_by(f):
        for name in sorted(f.calls - ASIDE):
            same_name = by_name.get(name, [])
            here = [g for g in same_name if g.path == f.path]
            for g in here or [g for g in same_name if not g.owner and "(anonymous)" not in g.hidden]:
                if not g.rethrows and not (g.takes_place and g.public):
                    yield g

    def check_of(f, seen):
        """Returns the names of the functions from f to a check without a line; None if there is no such check."""
        if f.checks:
            return f.name
        for g in called_by(f):
            if g in seen:
                continue
            seen.add(g)
            if found := check_of(g, seen):
                return f"{f.name} > {found}"
        return None

    bad = 0
    for f in functions:
        if f.public and (f.takes_place or f.makes_module) and not f.rethrows and (found := check_of(f, {f})):
            print(f"{f.path}:{f.line}: {f.owner}{f.name} checks without the line of its call: {found}")
            bad += 1
    print(f"{len(functions)} functions checked, {bad} violations")
    return 1 if bad or not functions else 0


if __name__ == "__main__":
    sys.exit(main())
