// A parallel loop of oneTBB. In a file of its own, which ThreadSanitizer does not instrument: it cannot see
// how oneTBB hands iterations over, and would report its ranges as races.
#pragma once

#include <functional>

namespace mx::test {

/// Calls body(i) for i in [0, n), isolated from the tasks outside, each iteration as a task of its own.
void parallel_loop(int n, const std::function<void(int)>& body);

}  // namespace mx::test
