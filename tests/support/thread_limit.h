// Sets how many threads parallel loops may use.
#pragma once

#include <functional>

namespace mx::test {

/// Runs f while oneTBB may use `threads` threads including the caller, even if there are fewer processors.
void with_threads(int threads, const std::function<void()>& f);

}  // namespace mx::test
