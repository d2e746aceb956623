// Golden arrays that PyTorch made: lines "name shape = values", as tests/nn/golden/*.py write them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/operators.h"

namespace mx::test {

class GoldenFile {
 public:
  explicit GoldenFile(const char* text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t equals = line.find(" =");
      if (equals == std::string::npos) continue;
      const size_t space = line.rfind(' ', equals - 1);
      Entry& entry = entries_[line.substr(0, space)];
      std::istringstream sizes(line.substr(space + 1, equals - space - 1));
      for (std::string size; std::getline(sizes, size, ',');)
        if (size != "-") entry.shape.push_back(std::stoll(size));
      std::istringstream words(line.substr(equals + 2));
      for (std::string word; words >> word;) entry.values.push_back(std::stod(word));
    }
  }

  bool has(const std::string& name) const { return entries_.contains(name); }
  /// Returns how many names expect() has not seen.
  size_t unused() const { return entries_.size() - seen_.size(); }

  void expect(const std::string& name, const NDArray& got, double tolerance = 1e-11) {
    SCOPED_TRACE(name);
    const auto found = entries_.find(name);
    ASSERT_NE(entries_.end(), found);
    seen_[name] = true;
    EXPECT_EQ(found->second.shape, got.shape());
    const std::vector<double>&want = found->second.values, have = got.to_vector<double>();
    ASSERT_EQ(want.size(), have.size());
    for (size_t i = 0; i < want.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(have[i])) continue;
      if (want[i] == have[i]) continue;
      EXPECT_NEAR(want[i], have[i], tolerance * std::max(1.0, std::abs(want[i]))) << '[' << i << ']';
    }
  }

 private:
  struct Entry {
    Shape shape;
    std::vector<double> values;
  };
  std::map<std::string, Entry> entries_;
  std::map<std::string, bool> seen_;
};

/// numbers() of the scripts.
inline NDArray golden_numbers(const Shape& shape, int64_t step) {
  return ((((arange(shape.numel()) * 7919 + 13 * step) % 101) - 50).to(f64) / 32).reshape(shape);
}

}  // namespace mx::test
