#include "kvstore/checksums.h"

#include "engine/base/error.h"
#include "kvstore/collective_op.h"
#include "kvstore/key_check.h"

namespace mx::detail {

ChecksumTable::ChecksumTable(const std::vector<KVKey>& of, const std::vector<NDArray>& arrays, int ranks,
                             std::source_location where)
    : sums(of.size() * static_cast<size_t>(ranks)) {
  for (const KVKey& key : of) keys.push_back(key.name());
  for (const NDArray& array : arrays)
    values.push_back(array.context().is_cpu() ? array.clone(where)
                                              : array.to(cpu(), where).to_contiguous(where));
}

uint64_t* ChecksumTable::add(int rank) {
  uint64_t* const own = sums.data() + keys.size() * static_cast<size_t>(rank);
  for (size_t k = 0; k < keys.size(); ++k) own[k] = hash_bytes(memory_of(values[k]), values[k].bytes());
  values.clear();
  return own;
}

std::exception_ptr ChecksumTable::error() const {
  for (size_t k = 0; k < keys.size(); ++k) {
    std::string same, other;
    for (size_t at = k; at < sums.size(); at += keys.size()) {
      std::string& list = sums[at] == sums[k] ? same : other;
      list += (list.empty() ? "" : ", ") + std::to_string(at / keys.size());
    }
    if (other.empty()) continue;
    return std::make_exception_ptr(ProtocolError(concat("[check_equal] expected equal values of \"", keys[k],
                                                        "\" on all ranks, got other values on rank(s) ",
                                                        other, " than on rank(s) ", same)));
  }
  return nullptr;
}

}  // namespace mx::detail
