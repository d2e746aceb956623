#include "operators/per_axis.h"

#include <algorithm>
#include <cstdint>
#include <variant>
#include <vector>

#include "engine/base/check.h"

namespace mx {

PerAxis::PerAxis(std::initializer_list<IntArg> numbers)
    : count_(static_cast<int32_t>(numbers.size())), numbers_{} {
  MX_CHECK(!std::empty(numbers) && numbers.size() <= kMost, InvalidArgument,
           "[PerAxis] expected 1 to 3 numbers, got ", numbers.size());
  int i = 0;
  for (const IntArg& number : numbers) numbers_[i++] = number;
}

PerAxis::PerAxis(std::span<const int64_t> numbers)
    : count_(static_cast<int32_t>(numbers.size())), numbers_{} {
  MX_CHECK(!numbers.empty() && numbers.size() <= kMost, InvalidArgument,
           "[PerAxis] expected 1 to 3 numbers, got ", numbers.size());
  std::copy(numbers.begin(), numbers.end(), numbers_);
}

bool PerAxis::all(int64_t number) const {
  for (int i = 0; i < count_; ++i)
    if (numbers_[i] != number) return false;
  return true;
}

void PerAxis::check(const char* op, const char* what, int axes, int64_t least) const {
  MX_CHECK(count_ == 1 || count_ == axes, InvalidArgument, "[", op, "] expected a ", what, " of 1 or ", axes,
           " numbers, got ", to_string(*this));
  for (int i = 0; i < count_; ++i)
    MX_CHECK(numbers_[i] >= least && numbers_[i] <= INT32_MAX, InvalidArgument, "[", op, "] expected a ",
             what, " of at least ", least, " and less than 2^31, got ", to_string(*this));
}

std::string to_string(const PerAxis& numbers) {
  if (numbers.count() == 1) return std::to_string(numbers[0]);
  std::string text = "(";
  for (int i = 0; i < numbers.count(); ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  return text + ")";
}

AttrValue attr_to_value(const PerAxis& value) {
  return std::vector<int64_t>(value.numbers().begin(), value.numbers().end());
}

void attr_from_value(PerAxis& target, const AttrValue& value, const char* name) {
  if (const auto* one = std::get_if<int64_t>(&value)) {
    target = *one;
    return;
  }
  std::vector<int64_t> numbers;
  detail::attr_from_value(numbers, value, name);
  target = PerAxis(numbers);
}

}  // namespace mx
