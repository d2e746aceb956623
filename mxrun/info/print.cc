#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "mxrun/hosts/text.h"
#include "mxrun/info/facts.h"

namespace mx::info {

std::string to_text(const std::vector<Section>& sections) {
  size_t width = 0;
  for (const Section& section : sections)
    for (const auto& fact : section.facts) width = std::max(width, fact.first.size());
  std::ostringstream out;
  for (const Section& section : sections) {
    out << section.name << '\n';
    for (const auto& [name, value] : section.facts)
      out << "  " << std::left << std::setw(static_cast<int>(width) + 2) << name
          << launch::text::in_one_line(value) << '\n';
    if (section.facts.empty()) out << "  nothing is set\n";
  }
  return out.str();
}

std::string to_json(const std::vector<Section>& sections) {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const Section& section : sections) {
    nlohmann::ordered_json facts = nlohmann::ordered_json::object();
    for (const auto& [name, value] : section.facts) facts[name] = value;
    all[section.name] = std::move(facts);
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace mx::info
