// mx_reference: writes the reference pages of the operators from their records.
//
//   mx_reference DIRECTORY          writes DIRECTORY/README.md and a page per family
//   mx_reference --check DIRECTORY  fails, naming the pages, if pages are missing, superfluous or different
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "operators/operator.h"

namespace mx {
namespace {

namespace fs = std::filesystem;

using Pages = std::map<std::string, std::string>;  // by file name

const char kNote[] =
    "`mx_reference` generates this page from the records in `operators/`. To change it, change the\n"
    "records and run `mx_reference docs/reference`.\n";

std::string joined(const std::vector<std::string>& words, const char* separator = ", ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

// Escapes a text for a table or for a paragraph.
std::string escaped(const std::string& text) {
  std::string result;
  for (char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<' || c == '>') result += '\\';
    result += c;
  }
  return result;
}

std::string signature(const Operator& op) {
  std::vector<std::string> arguments(op.inputs.begin(), op.inputs.end());
  if (op.attrs != nullptr)
    for (const AttrField& field : op.attrs->fields()) arguments.push_back(field.name);
  return std::string(op.name()) + '(' + joined(arguments) + ") -> " +
         joined({op.outputs.begin(), op.outputs.end()});
}

// Returns the names of the inputs whose bits are set.
std::string inputs_of(const Operator& op, uint64_t bits) {
  std::vector<std::string> names;
  for (size_t i = 0; i < op.inputs.size() && i < 64; ++i)
    if (has_bit(bits, i)) names.push_back(std::string("`") + op.inputs[i] + '`');
  return joined(names);
}

// Returns the names of the inputs and outputs that the gradient reads: they must not be changed before the
// backward pass.
std::string read_by_gradient(const Operator& op) {
  std::vector<std::string> names;
  const auto add = [&](const auto& all, uint64_t bits) {
    for (size_t i = 0; i < all.size() && i < 64; ++i)
      if (has_bit(bits, i)) names.push_back(std::string("`") + all[i] + '`');
  };
  add(op.inputs, op.gradient_uses.inputs);
  add(op.outputs, op.gradient_uses.outputs);
  return names.empty() ? "no values" : joined(names);
}

std::string dtypes(const Operator& op) {
  if (op.dtypes.empty() || op.dtypes.size() == kDTypes) return "all";
  std::vector<std::string> names;
  for (DType dtype : kAllDTypes)
    if (std::find(op.dtypes.begin(), op.dtypes.end(), dtype) != op.dtypes.end())
      names.emplace_back(to_string(dtype));
  return joined(names);
}

std::string traits(const Operator& op) {
  std::vector<std::string> list;
  if (op.elementwise) list.emplace_back("elementwise");
  if (op.gradient != nullptr) list.push_back("has a gradient, which reads " + read_by_gradient(op));
  if (op.in_place != 0) list.push_back("in place of " + inputs_of(op, op.in_place));
  if (op.updates != 0) list.push_back("changes " + inputs_of(op, op.updates));
  if (op.random) list.emplace_back("random");
  return joined(list, "; ");
}

void write_operator(std::ostream& out, const Operator& op) {
  out << "\n## " << escaped(op.name()) << "\n\n`" << signature(op) << "`\n\n" << escaped(op.doc) << "\n";
  if (op.attrs != nullptr && !op.attrs->fields().empty()) {
    const AttrMap defaults = Attrs::from_map(op.attrs, {}, op.name()).to_map();
    out << "\n| attribute | type | default | meaning |\n|---|---|---|---|\n";
    for (const AttrField& field : op.attrs->fields())
      out << "| `" << field.name << "` | " << field.type << " | `" << to_string(defaults.at(field.name))
          << "` | " << escaped(field.doc) << " |\n";
  }
  if (!op.inputs.empty()) out << "\nTypes of `" << op.inputs[0] << "`: " << dtypes(op) << ".\n";
  if (const std::string text = traits(op); !text.empty()) out << "\nTraits: " << text << ".\n";
}

Pages make_pages() {
  std::map<std::string, std::vector<const Operator*>> families;
  for (const Operator* op : all_operators()) families[op->family].push_back(op);
  Pages pages;
  std::ostringstream index;
  index << "# Operators\n\n"
        << kNote
        << "\nAn input whose name ends in `...` stands for any number of inputs; one whose name ends in `?`\n"
           "is optional. The types listed are those that the first input may have. The trait \"in place of\n"
           "`x`\" means that the result may be written to the memory of `x`.\n";
  for (const auto& [family, operators] : families) {
    std::ostringstream page;
    page << "# " << escaped(family) << "\n\n" << kNote;
    index << "\n## [" << escaped(family) << "](" << family << ".md)\n\n";
    for (const Operator* op : operators) {
      write_operator(page, *op);
      index << "- `" << op->name() << "`: " << escaped(op->doc) << '\n';
    }
    pages[family + ".md"] = page.str();
  }
  pages["README.md"] = index.str();
  return pages;
}

int write(const fs::path& directory) {
  fs::create_directories(directory);
  for (const auto& [name, text] : make_pages()) {
    std::ofstream out(directory / name, std::ios::binary);
    out << text;
    if (!out.flush()) {
      std::fprintf(stderr, "mx_reference: cannot write %s\n", (directory / name).c_str());
      return 1;
    }
  }
  return 0;
}

int check(const fs::path& directory) {
  const Pages pages = make_pages();
  int problems = 0;
  const auto report = [&](const std::string& name, const char* what) {
    std::fprintf(stderr, "%s %s; run `mx_reference docs/reference`\n", (directory / name).c_str(), what);
    ++problems;
  };
  for (const auto& [name, text] : pages) {
    std::ifstream in(directory / name, std::ios::binary);
    const std::string there(std::istreambuf_iterator<char>(in), {});
    if (!in) {
      report(name, "is missing");
    } else if (there != text) {
      report(name, "differs from the operator records");
    }
  }
  if (fs::is_directory(directory))
    for (const auto& entry : fs::directory_iterator(directory))
      if (pages.count(entry.path().filename().string()) == 0)
        report(entry.path().filename().string(), "belongs to no operator family");
  return problems == 0 ? 0 : 1;
}

}  // namespace
}  // namespace mx

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 1 && arguments[0][0] != '-') return mx::write(arguments[0]);
    if (arguments.size() == 2 && arguments[0] == "--check") return mx::check(arguments[1]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mx_reference: %s\n", e.what());
    return 1;
  }
  std::fputs("usage: mx_reference [--check] DIRECTORY\n", stderr);
  return 2;
}
