// The entries of one rendezvous. Internal.
//
// Thread-safety: one thread at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mx::comm {

class Table {
 public:
  /// Adds an entry. Returns false, and changes nothing, if the key exists.
  bool add(const std::string& key, const std::string& value) {
    const bool added = entries_.emplace(key, Entry{value, entries_.size()}).second;
    if (added) bytes_ += key.size() + value.size();
    return added;
  }
  /// Returns the value of a key, or null.
  const std::string* find(std::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second.value;
  }
  /// Calls f(key, value) for every entry whose key starts with the prefix, in the order in which they were
  /// written: of several lost processes, the one that was lost first comes first.
  template <class F>
  void each(std::string_view prefix, const F& f) const {
    std::vector<std::map<std::string, Entry, std::less<>>::const_iterator> found;
    for (auto at = entries_.lower_bound(prefix); at != entries_.end() && at->first.starts_with(prefix); ++at)
      found.push_back(at);
    std::sort(found.begin(), found.end(),
              [](const auto& a, const auto& b) { return a->second.number < b->second.number; });
    for (const auto& at : found) f(at->first, at->second.value);
  }
  /// Bytes of all keys and values.
  size_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::string value;
    uint64_t number;  // in the order of writing
  };
  std::map<std::string, Entry, std::less<>> entries_;
  size_t bytes_ = 0;
};

}  // namespace mx::comm
