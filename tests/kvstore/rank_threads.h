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

/// Calls body(store) on one thread for each member of a group. The body may throw; the texts of errors that
/// it does not catch are returned, by rank. A rank leaves the group when its body has ended, unless the
/// caller keeps its member.
inline std::vector<std::string> on_group(std::vector<std::shared_ptr<comm::Communicator>> group,
                                         const std::function<void(KVStore& store)>& body,
                                         const KVStoreOptions& options = {}) {
  std::vector<std::string> errors(group.size());
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
      group[r].reset();
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// The same with a group of threads.
inline std::vector<std::string> on_ranks(int ranks, const std::function<void(KVStore& store)>& body,
                                         const KVStoreOptions& options = {}, int64_t timeout_ms = 60000) {
  return on_group(comm::make_thread_group(ranks, timeout_ms), body, options);
}

}  // namespace mx::test
