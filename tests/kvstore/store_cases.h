// All types of stores behind one interface, for tests of what they have in common. Processes are threads
// here; servers are threads, too.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/kvstore/server_cluster.h"

namespace mx::test {

struct StoreCase {
  std::string type;
  int ranks = 1;
  int servers = 0;
  KVOrder order = KVOrder::program;

  std::string name() const {
    return type + "_" + std::to_string(ranks) + (servers > 0 ? "_with_" + std::to_string(servers) : "") +
           (order == KVOrder::priority ? "_by_priority" : "");
  }
  friend std::ostream& operator<<(std::ostream& out, const StoreCase& c) { return out << c.name(); }
};

/// Calls body(store) on one thread for each rank. The body may throw; the texts of errors that it does not
/// catch are returned, by rank.
inline std::vector<std::string> on_stores(const StoreCase& c, const std::function<void(KVStore& store)>& body,
                                          KVStoreOptions options = {}, int64_t timeout_ms = 60000) {
  options.order = c.order;
  if (c.type == "dist_allreduce") return on_ranks(c.ranks, body, options, timeout_ms);
  std::vector<std::exception_ptr> errors;
  const auto end_all = [] {
    try {
      wait_all();
    } catch (const Error&) {  // of values, which the body has looked at
    }
  };
  if (c.servers > 0) {
    const ServerCluster cluster(c.ranks, c.servers, timeout_ms);
    errors = cluster.run(c.type, body, options);
    end_all();
  } else {
    errors.resize(1);
    try {
      body(*KVStore::create(c.type, options));
    } catch (...) {
      errors[0] = std::current_exception();
    }
    end_all();
  }
  std::vector<std::string> texts;
  for (const std::exception_ptr& error : errors) texts.push_back(error == nullptr ? "" : kv::text_of(error));
  return texts;
}

inline std::vector<StoreCase> store_cases() {
  return {{"local"},
          {"device"},
          {"dist_allreduce", 1},
          {"dist_allreduce", 2},
          {"dist_allreduce", 3},
          {"dist_allreduce", 5},
          {"dist_allreduce", 3, 0, KVOrder::priority},
          {"dist_sync", 1, 1},
          {"dist_sync", 2, 2},
          {"dist_sync", 3, 1},
          {"dist_async", 1, 2}};
}

}  // namespace mx::test
