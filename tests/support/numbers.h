// Named numbers for tests.
#pragma once

#include <limits>

namespace mx::test {

inline constexpr double kInf = std::numeric_limits<double>::infinity();

}  // namespace mx::test
