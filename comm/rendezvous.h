// Rendezvous: the small shared table through which the processes of a job find each other and learn of
// failures.
//
// Keys and values are short byte strings (at most kLongestKey and kLongestValue bytes). A key is written
// once: put() of a key that exists with another value throws. The keys of an epoch start with its number, so
// that a restarted group does not read entries of the one before: epoch_key().
//
// Thread-safety: any thread may call any function.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "comm/deadline.h"

namespace mx::comm {

class Rendezvous {
 public:
  static constexpr size_t kLongestKey = 256, kLongestValue = 64 * 1024;

  virtual ~Rendezvous() = default;

  /// Writes an entry. Throws InvalidState if the key exists with another value, and InvalidArgument for sizes
  /// beyond the limits.
  virtual void put(const std::string& key, const std::string& value) = 0;
  /// Passes an entry to the watches that exist now, and keeps nothing: neither get() nor a later watch sees
  /// it. So a key may be told as often as wanted. For messages without end, which would fill the table.
  virtual void tell(const std::string& key, const std::string& value) = 0;
  /// Returns the value; waits for it until the deadline, then throws Timeout naming the key.
  virtual std::string get(const std::string& key, Deadline deadline) = 0;
  /// Calls `changed(key, value)` for every entry, present or later, whose key starts with `prefix`, each
  /// once, in the order in which they were written, and for what is told. It runs on a thread of the
  /// rendezvous and must not call the rendezvous. Returns a number for unwatch().
  using Changed = std::function<void(std::string_view key, std::string_view value)>;
  virtual uint64_t watch(const std::string& prefix, Changed changed) = 0;
  /// Ends a watch. When it returns, `changed` is not running and will not be called again.
  virtual void unwatch(uint64_t id) = 0;
};

/// "<epoch>/<key>"
std::string epoch_key(int64_t epoch, std::string_view key);

}  // namespace mx::comm
