// Golden values: lines "name shape = values", as tests/operators/golden/make_numpy.py writes them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>

#include "operators/elementwise_binary.h"
#include "tests/operators/values.h"

namespace mx::test {

class GoldenArrays {
 public:
  explicit GoldenArrays(const char* text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const size_t equals = line.find(" =");
      if (equals == std::string::npos) continue;
      const size_t space = line.rfind(' ', equals - 1);
      Entry& entry = all_[line.substr(0, space)];
      std::istringstream sizes(line.substr(space + 1, equals - space - 1));
      for (std::string size; std::getline(sizes, size, ',');)
        if (size != "-") entry.shape.push_back(std::stoll(size));
      std::istringstream words(line.substr(equals + 2));
      for (std::string word; words >> word;) entry.values.push_back(number(word));
    }
  }

  bool has(const std::string& name) const { return all_.contains(name); }
  size_t size() const { return all_.size(); }

  /// `tolerance`: relative, and absolute for numbers smaller than 1.
  void expect(const std::string& name, const NDArray& got, double tolerance) const {
    SCOPED_TRACE(name);
    const auto found = all_.find(name);
    ASSERT_NE(all_.end(), found);
    EXPECT_EQ(found->second.shape, got.shape());
    const Values &want = found->second.values, have = values(got);
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
    Values values;
  };
  static double number(const std::string& word) {
    return word == "nan" ? kNan : word == "inf" ? kInfinity : word == "-inf" ? -kInfinity : std::stod(word);
  }
  std::map<std::string, Entry> all_;
};

/// The inputs of the scripts that write golden values.
inline NDArray formula_numbers(const Shape& shape, DType dtype = f64) {
  return ((((arange(shape.numel()) * 7919 + 13) % 101) - 50).to(dtype) / 8).reshape(shape);
}

}  // namespace mx::test
