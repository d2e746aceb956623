// Names, printing and the summary.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <ostream>
#include <set>

#include "engine/base/check.h"
#include "engine/base/type_name.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/module_state.h"
#include "nn/module.h"

namespace mx::nn {

using detail::ModuleState;

namespace {

void print(const Module& module, const std::string& indent, std::string& text) {
  const auto& children = module.children();
  const std::string extra = module.extra();
  text += module.type_name() + '(' + extra;
  if (children.empty()) {
    text += ')';
    return;
  }
  for (const NamedModule& child : children) {
    text += '\n' + indent + "  (" + child.name + "): ";
    print(*child.module, indent + "  ", text);
  }
  text += '\n' + indent + ')';
}

using Row = std::vector<std::string>;

/// Formats rows as columns of minimal width. The first two columns are left-aligned, the others
/// right-aligned.
std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      const size_t space = widths[i] - row[i].size();
      if (i >= 2) line.append(space, ' ');
      line += row[i];
      if (i < 2) line.append(space, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

/// The outputs of a module's first call.
struct Outputs {
  std::string shapes;
  int64_t bytes = 0;
};

/// Returns the table; with the outputs of each module if `outputs` is not null.
std::string summarise(const Module& module, const std::map<const void*, Outputs>* outputs) {
  std::vector<Row> rows = {outputs != nullptr
                               ? Row{"module", "type", "output", "parameters", "bytes", "output bytes"}
                               : Row{"module", "type", "parameters", "bytes"}};
  std::set<const void*> modules, places;
  int64_t total = 0, trained = 0, bytes = 0, output_bytes = 0;
  const std::function<void(const std::string&, const Module&)> visit = [&](const std::string& path,
                                                                           const Module& part) {
    Row row = {path.empty() ? "." : path, part.type_name()};
    const bool again = !modules.insert(part.identity()).second;
    const Outputs* made = nullptr;
    if (outputs != nullptr) {
      const auto found = outputs->find(part.identity());
      if (found != outputs->end()) made = &found->second;
      row.push_back(made == nullptr ? "-" : made->shapes);
    }
    int64_t own = 0, own_bytes = 0;
    for (const ModuleState::Array& entry : ModuleState::of(part).arrays) {
      if (!places.insert(entry.place.identity()).second) continue;
      const NDArray& array = entry.place.array();
      own_bytes += static_cast<int64_t>(array.bytes());
      if (entry.buffer) continue;
      own += array.numel();
      if (array.requires_grad()) trained += array.numel();
    }
    total += own;
    bytes += own_bytes;
    row.push_back(again ? "shared" : std::to_string(own));
    row.push_back(again ? "shared" : std::to_string(own_bytes));
    if (outputs != nullptr) row.push_back(made == nullptr ? "-" : std::to_string(made->bytes));
    rows.push_back(row);
    if (again) return;
    // The outputs of a module that consists of others are among theirs.
    if (made != nullptr && part.children().empty()) output_bytes += made->bytes;
    for (const NamedModule& child : part.children())
      visit(path.empty() ? child.name : path + '.' + child.name, *child.module);
  };
  visit("", module);
  std::string text = table(rows) + mx::detail::concat(total, " parameters, ", trained, " of them trained; ",
                                                      bytes, " bytes with the buffers");
  if (outputs != nullptr)
    text += mx::detail::concat("; ", output_bytes, " bytes of outputs of modules without parts");
  return text + '\n';
}

}  // namespace

std::string detail::short_name(const std::type_info& type) { return mx::detail::short_type_name(type); }

std::string detail::title(const Module& module) {
  const std::string& name = ModuleState::of(module).name;
  return name.empty() ? module.type_name() : name + " (" + module.type_name() + ')';
}

void detail::throw_not_whole(const char* op, const Module& module, const std::type_info& as) {
  throw InvalidArgument(mx::detail::concat("[", op, "] expected a ", detail::short_name(as), ", got a ",
                                           detail::short_name(typeid(module)),
                                           ", whose other members would be lost in the copy"));
}

std::string Module::type_name() const { return detail::short_name(typeid(*this)); }

std::string to_string(const Module& module) {
  std::string text;
  print(module, "", text);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << to_string(module); }

std::string Module::summary() const { return summarise(*this, nullptr); }

std::string Module::summary(const NDArray& x) const {
  std::map<const void*, Outputs> made;
  {
    const detail::CallWatch watch([&](const Module& module, std::span<const NDArray> outputs) {
      Outputs all;
      for (const NDArray& output : outputs) {
        if (!all.shapes.empty()) all.shapes += ' ';
        all.shapes += to_string(output.shape());
        all.bytes += static_cast<int64_t>(output.bytes());
      }
      made.emplace(module.identity(), all);  // keeps those of the first call
    });
    const NoGrad guard;
    const PredictMode mode;
    (*this)(x);
  }
  return summarise(*this, &made);
}

std::string Module::summary(const Shape& x, DType dtype) const {
  Context context = cpu();
  if (const Parameters all = parameters(); !all.empty()) context = all[0].context();
  return summary(zeros(x, dtype, context));
}

}  // namespace mx::nn
