#!/usr/bin/env python3
"""Checks that sources include the standard headers whose names they use. Usage: check_includes.py [--fix] [ROOT]

Standard headers include each other, and the set differs between libraries and their versions. Code that gets
std::uint64_t through another header than <cstdint> builds with one compiler and not with the next. The rules:

  * a header includes the standard header of each name that it uses (only the names listed below);
  * any other source includes it, or includes a header of this tree that does, directly or through others.

Prints one line per violation and exits 1 if there is any. --fix adds the missing includes, in alphabetical order.
"""

import os
import re
import sys

import check_layers

HEADER = (".h", ".cuh")

# For each header: the headers that provide its names too, in every standard library. For some pairs the standard
# requires that; for the others it follows from the declarations that they must have.
BROUGHT_ALONG = {
    "cstddef": {"cstdlib", "cstdio", "cstring"},
    "cmath": {"complex"},
    "compare": {"utility"},
    "exception": {"stdexcept"},
    "initializer_list": {"vector", "string", "map", "set"},
    "istream": {"iostream", "sstream", "fstream", "iosfwd"},
    "ostream": {"iostream", "sstream", "fstream", "iosfwd", "iomanip"},
    "ranges": {"algorithm"},
    "string_view": {"string"},
    "type_traits": {"utility", "functional", "memory", "tuple"},
    "utility": {"algorithm", "array", "functional", "map", "memory", "optional", "string", "tuple", "unordered_map",
                "variant", "vector"},
}

# Names of namespace std, by the header that declares them.
NAMES = {
    "algorithm": "all_of any_of clamp copy copy_n count count_if equal fill fill_n find find_if for_each is_sorted"
    " lower_bound max max_element min min_element minmax none_of nth_element partial_sort remove_if reverse rotate sort"
    " stable_sort transform unique upper_bound",
    "any": "any any_cast",
    "array": "array to_array",
    "atomic": "atomic atomic_flag atomic_ref atomic_thread_fence memory_order memory_order_acq_rel memory_order_acquire"
    " memory_order_relaxed memory_order_release memory_order_seq_cst",
    "barrier": "barrier",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount",
    "bitset": "bitset",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": "ceil copysign cos erf exp expm1 fabs floor fma frexp hypot isfinite isinf isnan ldexp lgamma log log1p log2"
    " nearbyint pow round sin sqrt tanh trunc",
    "compare": "partial_ordering strong_ordering weak_ordering",
    "complex": "complex",
    "concepts": "constructible_from convertible_to derived_from floating_point integral invocable regular same_as"
    " totally_ordered",
    "condition_variable": "condition_variable condition_variable_any",
    "coroutine": "coroutine_handle",
    "cstddef": "byte max_align_t nullptr_t ptrdiff_t",
    "cstdio": "FILE fopen fprintf printf snprintf",
    "cstdlib": "abort aligned_alloc atexit exit getenv malloc strtol",
    "cstring": "memcmp memcpy memmove memset strcmp strlen",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr make_exception_ptr rethrow_exception terminate"
    " uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "ifstream ofstream fstream",
    "functional": "cref function greater hash invoke less plus ref reference_wrapper",
    "future": "future promise",
    "initializer_list": "initializer_list",
    "iomanip": "setprecision setw",
    "iostream": "cerr cin cout",
    "istream": "istream",
    "iterator": "back_inserter bidirectional_iterator_tag default_sentinel default_sentinel_t forward_iterator_tag"
    " input_iterator_tag make_move_iterator make_reverse_iterator random_access_iterator_tag",
    "latch": "latch",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "addressof construct_at destroy_at enable_shared_from_this make_shared make_unique shared_ptr unique_ptr"
    " weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock",
    "new": "align_val_t bad_alloc launder nothrow",
    "numbers": "numbers",
    "numeric": "accumulate gcd inner_product iota lcm partial_sum reduce",
    "optional": "nullopt nullopt_t optional",
    "ostream": "endl ostream",
    "queue": "priority_queue queue",
    "random": "mt19937 mt19937_64 normal_distribution uniform_int_distribution uniform_real_distribution",
    "ranges": "ranges",
    "semaphore": "binary_semaphore counting_semaphore",
    "set": "multiset set",
    "shared_mutex": "shared_lock shared_mutex",
    "source_location": "source_location",
    "span": "dynamic_extent span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument length_error logic_error out_of_range runtime_error",
    "stop_token": "stop_source stop_token",
    "string": "getline stod stoi stol string to_string",
    "string_view": "string_view",
    "system_error": "error_code system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply forward_as_tuple make_tuple tie tuple tuple_size_v",
    "type_traits": "bool_constant conditional_t decay_t enable_if_t false_type integral_constant invoke_result_t"
    " is_arithmetic_v is_base_of_v is_const_v is_constant_evaluated is_constructible_v is_convertible_v is_enum_v"
    " is_floating_point_v is_integral_v is_invocable_r_v is_invocable_v is_same_v is_signed_v is_trivially_copyable_v"
    " is_unsigned_v is_void_v make_signed_t make_unsigned_t remove_const_t remove_cvref_t remove_reference_t true_type"
    " type_identity_t underlying_type_t void_t",
    "typeindex": "type_index",
    "typeinfo": "type_info",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "as_const declval exchange forward in_place in_place_t index_sequence index_sequence_for"
    " make_index_sequence make_pair move pair swap",
    "variant": "get_if holds_alternative monostate variant visit",
    "vector": "vector",
}
PATTERNS = {header: r"\bstd::(?:" + "|".join(names.split()) + r")\b" for header, names in NAMES.items()}
# Names that are also used without std::.
PATTERNS["cstdint"] = (r"\bu?int(?:8|16|32|64|ptr|max|_(?:fast|least)(?:8|16|32|64))_t\b"
                       r"|\b(?:U?INT(?:8|16|32|64)_(?:MAX|MIN)|SIZE_MAX)\b")
PATTERNS["cassert"] = r"\bassert\("
PATTERNS["cerrno"] = r"\berrno\b"
PATTERNS = {header: re.compile(pattern) for header, pattern in PATTERNS.items()}

ANGLED = re.compile(r"^\s*#\s*include\s*<([^>]+)>", re.MULTILINE)
QUOTED = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
# A string may contain what looks like a comment, and a comment what looks like a string. The one that begins
# first counts.
NO_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|^[ \t]*#[ \t]*include[^\n]*', re.DOTALL | re.MULTILINE)
INCLUDE_LINE = re.compile(r"^(\s*#\s*)include ")


def blank(match):
    """Returns as many newlines as the match contains, without its text."""
    return "\n" * match.group().count("\n")


class Includes:
    def __init__(self, root):
        self.root = root
        self.files = [f for f in check_layers.Checker(root).files if f.endswith(check_layers.SOURCE)]
        self.texts = {}
        for path in self.files:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                self.texts[path] = file.read()
        self.reached = {}

    def through(self, path):
        """Returns the standard headers that a file of the tree includes, directly or through other files of the tree."""
        if path not in self.reached:
            self.reached[path] = found = set()  # set before the recursion, so that a cycle of includes ends
            text = self.texts[path]
            found.update(ANGLED.findall(text))
            for name in QUOTED.findall(text):
                for target in (name, "include/" + name):
                    if target in self.texts:
                        found.update(self.through(target))
            for name in ANGLED.findall(text):
                if "include/" + name in self.texts:
                    found.update(self.through("include/" + name))
        return self.reached[path]

    def missing(self, path):
        """Returns (header, line, name) for each standard header that the file uses but does not include."""
        text = self.texts[path]
        there = set(ANGLED.findall(text)) if path.endswith(HEADER) else self.through(path)
        code = NO_CODE.sub(blank, text)
        for header, pattern in sorted(PATTERNS.items()):
            if header in there or BROUGHT_ALONG.get(header, set()) & there:
                continue
            use = pattern.search(code)
            if use:
                yield header, code.count("\n", 0, use.start()) + 1, use.group().rstrip("(")

    def fix(self, path, header):
        """Adds an include to the first block of standard headers; creates the block if there is none."""
        lines = self.texts[path].split("\n")
        standard = [i for i, line in enumerate(lines) if re.match(r"\s*#\s*include <\w+>", line)]
        if standard:
            last = standard[0]
            while last + 1 in standard:
                last += 1
            block = range(standard[0], last + 1)
            at = next((i for i in block if lines[i].split("<")[1] > header + ">"), last + 1)
            new = [INCLUDE_LINE.match(lines[last]).group(1) + f"include <{header}>"]
        else:
            at = next((i for i, line in enumerate(lines) if INCLUDE_LINE.match(line)), None)
            if at is None:
                at = next(i for i, line in enumerate(lines) if line.startswith("#pragma once")) + 1
                new = ["", f"#include <{header}>"]
            elif path.endswith(HEADER):
                new = [INCLUDE_LINE.match(lines[at]).group(1) + f"include <{header}>", ""]
            else:  # the first include of a source is the header that it implements or tests
                at += 1
                new = ["", f"#include <{header}>"]
        lines[at:at] = new
        self.texts[path] = "\n".join(lines)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(self.texts[path])


def main():
    arguments = sys.argv[1:]
    fix = "--fix" in arguments
    arguments = [a for a in arguments if a != "--fix"]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    includes = Includes(os.path.abspath(root))
    problems = 0
    for path in includes.files:
        for header, line, name in list(includes.missing(path)):
            if fix:
                includes.fix(path, header)
                print(f"{path}: added <{header}>")
            else:
                print(f"{path}:{line}: {name} is used without #include <{header}>")
                problems += 1
    if not includes.files:
        print(f"no source files under {root}")
        return 1
    if not fix:
        print(f"{len(includes.files)} files checked, {problems} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
