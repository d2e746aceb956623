#include <algorithm>
#include <string>

#include "engine/base/check.h"
#include "nn/metric/metric.h"

namespace mx::metric {

void Composite::add_shared(const std::string& name, std::shared_ptr<Metric> metric) {
  for (const auto& entry : metrics_)
    MX_CHECK(entry.first != name, InvalidArgument, "[Composite] expected names that differ, got '", name,
             "' twice");
  metrics_.emplace_back(name, std::move(metric));
}

void Composite::update(const NDArray& logits, const NDArray& labels, const NDArray& loss,
                       std::source_location where) {
  for (const auto& [name, metric] : metrics_) {
    try {
      metric->observe({logits, labels, loss}, where);
    } catch (...) {
      std::rethrow_exception(rewrite_current_exception([&name = name](const std::string& text) {
        return mx::detail::concat(text, " (in metric '", name, "')");
      }));
    }
  }
}

std::vector<std::pair<std::string, double>> Composite::values() const {
  std::vector<std::pair<std::string, double>> all;
  for (const auto& [name, metric] : metrics_) all.emplace_back(name, metric->value());
  return all;
}

double Composite::value(const std::string& name) const {
  const auto found =
      std::find_if(metrics_.begin(), metrics_.end(), [&](const auto& m) { return m.first == name; });
  MX_CHECK(found != metrics_.end(), InvalidArgument,
           "[Composite] expected the name of one of its metrics, got '", name, "'");
  return found->second->value();
}

void Composite::reset() {
  for (const auto& entry : metrics_) entry.second->reset();
}

}  // namespace mx::metric
