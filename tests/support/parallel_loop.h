// A parallel loop of oneTBB. It is in its own file, which ThreadSanitizer does not instrument: the sanitizer
// cannot see how oneTBB passes iterations between threads, and would report its ranges as races.
#pragma once

#include <functional>

namespace mx::test {

/// Calls body(i) for i in [0, n), each iteration as its own task. The tasks are isolated from tasks outside.
void parallel_loop(int n, const std::function<void(int)>& body);

}  // namespace mx::test
