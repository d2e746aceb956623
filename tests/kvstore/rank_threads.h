// Ranks of a store as threads of one process, each with an engine of its own.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/threads/thread_group.h"
#include "kvstore/dist_allreduce.h"
#include "ndarray/storage.h"

namespace mx::test {

/// Calls body(store) on one thread for each rank. The body may throw; the texts of errors that it does not
/// catch are returned, by rank.
inline std::vector<std::string> on_ranks(int ranks, const std::function<void(KVStore& store)>& body,
                                         const KVStoreOptions& options = {}, int64_t timeout_ms = 60000) {
  const auto group = comm::make_thread_group(ranks, timeout_ms);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      Engine engine(EngineOptions{.threads = 1});
      const EngineScope scope(engine);
      try {
        detail::DistAllreduce store("dist_allreduce", group[r], detail::SumPlace::host, options);
        body(store);
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
      try {
        engine.wait_all();
      } catch (const std::exception&) {
        // reported by what the body waited for
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace mx::test
