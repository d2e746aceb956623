// The state of one key in a Machine. Internal.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "kvstore/server/machine.h"

namespace mx::kv {

/// The number of pushes of a worker that pushes a key no more.
inline constexpr uint64_t kPushesNoMore = UINT64_MAX;

struct Machine::Key {
  explicit Key(size_t workers) : declared(workers), pushes(workers, 0), lines(workers) {}

  /// Bytes of the piece, for the elements that a worker sends.
  static uint64_t bytes_of(const KeyBody& body) { return body.count * comm::size_of(body.type); }

  std::vector<std::optional<KeyBody>> declared;  // by worker
  bool agreed = false;                           // all have declared the same
  Cause failure;                                 // if it has an error, all requests are refused with it
  std::set<uint32_t> erased;                     // workers that have erased the failed key
  Bytes value;
  bool has_value = false;
  uint64_t version = 0;
  std::optional<RankSum> sum;    // of the current round; set by its first push
  uint64_t divisor = 0;          // of the current round, set by its first push
  uint32_t first = 0;            // the worker of that push
  std::vector<uint64_t> pushes;  // by worker, without `sync`; kPushesNoMore: its value has failed
  std::vector<Line> lines;       // by worker

  const KeyBody& body() const { return *declared[0]; }  // once agreed
};

}  // namespace mx::kv
