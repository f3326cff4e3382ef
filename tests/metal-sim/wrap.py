#!/usr/bin/env python3
"""Turns a .metal file into C++ that the executor or clang's syntax check can compile.

    wrap.py IN.metal OUT.cpp [--plant NAME]

The text stays as it is, line for line, but for three things that C++ cannot say:
  - `threadgroup T name[N];` in a kernel becomes SIM_THREADGROUP(T, name, [N])
  - `[[attributes]]` of kernel arguments are read and removed
  - `template [[host_name("x")]] kernel decltype(f<A>) f<A>;` becomes a wrapper
and a wrapper per kernel binds buffers and positions by those attributes. On the way it refuses what Metal would refuse and C++
would not: see lint(). --plant NAME applies one of the mistakes of faults.txt; its kernels are called KERNEL@NAME and live in a
namespace, so that a test can hold many."""
import os
import re
import sys

POSITIONS = ("thread_position_in_threadgroup", "threads_per_threadgroup", "threadgroup_position_in_grid", "threadgroups_per_grid")
INDICES = ("thread_index_in_threadgroup", "thread_index_in_simdgroup", "simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup")
HERE = os.path.dirname(os.path.abspath(__file__))


def fail(path, text, at, what):
    sys.exit(f"{path}:{text.count(chr(10), 0, at) + 1}: {what}")


def blank_comments(text):
    """Comments become spaces, so that offsets and lines stay."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def closing(text, at):
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise ValueError("no closing parenthesis")


LINTS = (
    (r"(?<![\w.])(\d+\.\d*|\.\d+|\d+[eE][-+]?\d+)([eE][-+]?\d+)?(?![\w.])",
     "a literal without suffix is a double in C++ and a float in Metal"),
    (r"\b(double|long\s+long|goto|new|delete|virtual|noexcept|thread_local|try|throw|goto)\b", "Metal has no such word"),
    (r"\b(size_t|ptrdiff_t|int64_t|uint64_t)\b", "say uint or ulong"),
    (r"\b(log1p|expm1|std::\w+)\b", "Metal has no such function"),
    (r"\bif\s+constexpr\b", "not before Metal 4"),
    (r"max_total_threads_per_threadgroup\(\s*32\s*\)", "Apple's compiler spoils tiles for one simdgroup; ask for 64 or more"),
    (r"\[\[\s*threadgroup\s*\(", "threadgroup memory is declared in the kernel"),
    (r"\bINFINITY\b|\bNAN\b|\bisnan\b|\bisinf\b", "undefined in fast mode; use large finite numbers"),
)
TYPES = r"(?:void|bool|float|half|int|uint|char|uchar|short|ushort|long|ulong|T|struct\s+\w+|ds_\w+|packed_\w+|(?:float|half|int|uint|uchar|char|ushort)[234])"


def lint(path, text):
    for pattern, why in LINTS:
        m = re.search(pattern, text)
        if m:
            fail(path, text, m.start(), f"'{m.group()}': {why}")
    for m in re.finditer(rf"\b(?:const\s+)?{TYPES}\s*(?:const\s*)?[*&]\s*\w", text):
        before = text[max(0, text.rfind("\n", 0, m.start())):m.start()]
        inside = re.split(r"[(,;{]", before)[-1]
        if "&" in m.group() and "&&" in text[m.start():m.end() + 1]:
            continue
        if not re.search(r"\b(device|constant|threadgroup|thread)\b", inside):
            fail(path, text, m.start(), f"'{m.group()}': a pointer or reference names its address space")
    for m in re.finditer(r"\(\s*(device|threadgroup|constant)\b[^()]*\*\s*\)\s*\(?\s*(\w+)", text):     # clang lets these casts pass
        spaces = re.findall(rf"\b(device|threadgroup|constant|thread)\b[^;(){{}}]*?\b{m.group(2)}\b", text[:m.start()])
        if not spaces or spaces[-1] != m.group(1):
            fail(path, text, m.start(), f"'{m.group()}': a cast from one address space to another")
    for m in re.finditer(r"^(?:static\s+)?(?:const\s+)?(?:float|half|int|uint|uchar|ushort|char)[234]?\s+\w+\s*(?:\[[^]]*\])?\s*=", text, re.M):
        fail(path, text, m.start(), f"'{m.group()}': program-scope variables are constant")


def parse_params(path, text, start, end):
    params, depth, at = [], 0, start
    pieces = []
    for i in range(start, end + 1):
        if i == end or (text[i] == "," and depth == 0):
            pieces.append((at, text[at:i]))
            at = i + 1
        elif text[i] in "([<":
            depth += 1
        elif text[i] in ")]>":
            depth -= 1
    for at, piece in pieces:
        m = re.match(r"\s*(.*?)(\w+)\s*\[\[\s*(\w+)(?:\(\s*(\d+)\s*\))?\s*\]\]\s*$", piece, re.S)
        if not m:
            fail(path, text, at, f"argument without an attribute: {' '.join(piece.split())}")
        kind, attribute, number = m.group(1).strip(), m.group(3), m.group(4)
        if attribute == "buffer":
            if int(number) > 30 or not re.search(r"[*&]$", kind) or not re.match(r"(const\s+)?(device|constant)\b", kind):
                fail(path, text, at, f"not a buffer argument: {kind}")
        elif attribute in POSITIONS:
            if kind != "uint3":
                fail(path, text, at, f"{attribute} is uint3 in this project, not {kind}")
        elif attribute in INDICES:
            if kind != "uint":
                fail(path, text, at, f"{attribute} is uint in this project, not {kind}")
        else:
            fail(path, text, at, f"unknown attribute {attribute}")
        params.append((kind, attribute, number))
    numbers = [n for _, a, n in params if a == "buffer"]
    if len(set(numbers)) != len(numbers):
        fail(path, text, start, "two arguments have one buffer index")
    return params


def argument(kind, attribute, number):
    if attribute == "buffer":
        bare = re.sub(r"\b(device|constant)\b", "", kind).strip()
        if "constant" in kind and not bare.startswith("const"):
            bare = "const " + bare
        if bare.endswith("&"):
            return f"*static_cast<{bare[:-1].strip()} *>(t.buffer[{number}])"
        return f"sim_pointer {{ t.buffer[{number}] }}"
    if attribute in POSITIONS:
        return f"sim_vector(t.{attribute})"
    return f"t.{attribute}"


def describe(kind, attribute, number):
    bare = re.sub(r"\b(device|constant|const)\b|[*&]", "", kind).strip()
    size = f"sizeof({bare})" if kind.endswith("&") else "0"
    written = "false" if "const" in kind else "true"
    return f"{{ {number}, {size}, {written} }}"


def wrapper(name, call, params, limit, suffix):
    """One line, so that line numbers stay."""
    args = ", ".join(argument(*p) for p in params)
    table = ", ".join(describe(*p) for p in params if p[1] == "buffer")
    n = sum(p[1] == "buffer" for p in params)
    return (f"SIM_EXECUTED(namespace sim_of_{name} {{ static const sim_param params[] = {{ {table} }}; "
            f"static void run(const sim_thread &t) {{ {call}({args}); }} "
            f"static sim_kernel k = {{ \"{name}{suffix}\", run, params, {n}, {limit}, 0 }}; static sim_register r(&k); }})")


def convert(path, text, suffix):
    code = blank_comments(text)
    lint(path, code)
    edits, signatures, tail = [], {}, []
    for m in re.finditer(r"(\[\[\s*max_total_threads_per_threadgroup\(\s*(\d+)\s*\)\s*\]\]\s*)?\bkernel\s+void\s+(\w+)\s*\(", code):
        open_at = m.end() - 1
        close = closing(code, open_at)
        params = parse_params(path, code, open_at + 1, close)
        limit = m.group(2) or "0"
        signatures[m.group(3)] = (params, limit)
        if m.group(1):
            edits.append((m.start(1), m.end(1), ""))
        for a in re.finditer(r"\[\[[^]]*\]\]", code[open_at:close]):
            edits.append((open_at + a.start(), open_at + a.end(), ""))
        if not re.search(r"template\s*<[^>]*>\s*$", code[:m.start()]):
            tail.append(wrapper(m.group(3), m.group(3), params, limit, suffix))
    for m in re.finditer(r"template\s*\[\[\s*host_name\(\"(\w+)\"\)\s*\]\]\s*kernel\s+decltype\((\w+)(<[^;]*?>)\)\s*\2\3\s*;", code):
        if m.group(2) not in signatures:
            fail(path, code, m.start(), f"{m.group(2)} is not a kernel above")
        params, limit = signatures[m.group(2)]
        edits.append((m.start(), m.end(), f"SIM_INSTANCE({m.group(2)}{m.group(3)})"))
        tail.append(wrapper(m.group(1), m.group(2) + m.group(3), params, limit, suffix))
    for m in re.finditer(r"^([ \t]+)threadgroup\s+(\w+)\s+(\w+)\s*((?:\[[^;]*\])?)\s*;", code, re.M):
        edits.append((m.start(), m.end(), f"{m.group(1)}SIM_THREADGROUP({m.group(2)}, {m.group(3)}, {m.group(4)});"))
    for m in re.finditer(r"\bconstant\s+int\s+(\w+)\s*\[\[\s*function_constant\((\d)\)\s*\]\]\s*;", code):
        edits.append((m.start(), m.end(), f"SIM_FUNCTION_CONSTANT({m.group(1)}, {m.group(2)});"))
    for m in re.finditer(r"#pragma[^\n]*", code):
        edits.append((m.start(), m.end(), ""))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text, tail


def plant(path, text, name):
    for line in open(os.path.join(HERE, "faults.txt"), encoding="utf-8"):
        parts = line.rstrip("\n").replace("\\n", "\n").split(" | ")
        if parts[0] == name:
            if text.count(parts[2]) != 1:
                sys.exit(f"faults.txt: {name}: its text occurs {text.count(parts[2])} times in {path}")
            return text.replace(parts[2], parts[3])
    sys.exit(f"faults.txt has no fault {name}")


def lint_headers(folder, text, seen):
    for name in re.findall(r'^#include "([^"/]+)"', text, re.M):
        path = os.path.join(folder, name)
        if name not in seen and os.path.exists(path):
            seen.add(name)
            header = blank_comments(open(path, encoding="utf-8").read())
            lint(path, header)
            lint_headers(folder, header, seen)


def main():
    source, target = sys.argv[1], sys.argv[2]
    fault = sys.argv[4] if sys.argv[3:4] == ["--plant"] else ""
    text = open(source, encoding="utf-8").read()
    if fault:
        text = plant(source, text, fault)
    lint_headers(os.path.dirname(source), text, set())
    body, tail = convert(source, text, "@" + fault if fault else "")
    with open(target, "w", encoding="utf-8") as f:
        f.write('#include "wrap.h"\n')
        f.write(f"namespace planted_{fault} {{\n" if fault else "")
        f.write(f'#line 1 "{source}"\n{body}\n#line 1 "{os.path.basename(target)}"\n' + "\n".join(tail) + "\n")
        f.write("}\n" if fault else "")


main()
