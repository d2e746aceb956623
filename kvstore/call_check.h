// What all stores do at the start of a call: they check its arguments, and set the state of the thread.
// Internal.
//
// The checks throw InvalidArgument. Stores check all keys of a list before they push anything.
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "kvstore/sum.h"
#include "ndarray/grad_mode.h"
#include "ndarray/priority.h"

namespace mx::detail {

/// How long beyond its time limit a call may take, to find out which processes have not come.
inline constexpr int64_t kNamingMs = 2000;

/// During a call, operations on arrays have the priority of the call, and no gradients are recorded.
class CallScope {
 public:
  /// Throws InvalidArgument for a negative time limit and for an unknown KVReduce.
  explicit CallScope(const KVOptions& options);

 private:
  const NoGrad pause_;
  const PriorityScope priority_;
};

/// Throws for a negative time limit.
void check_timeout(int64_t timeout_ms);
/// Throws for a negative number of elements.
void check_elements(const char* op, int64_t elements);
/// Throws, naming the key, if there is no value, one of another shape, or one of which no mean can be taken.
void check_values(const char* op, const std::string& key, const std::vector<NDArray>& values,
                  const Shape& shape, KVReduce reduce);
/// Throws InvalidState, naming the key, if an array that is to be filled is the result of a recorded
/// operation: gradients would go through the operation, which did not compute the new value.
void check_not_recorded(const char* op, const std::string& key, const NDArray& out);
/// Throws, naming the key, if an array that is to be filled has another shape or is recorded.
void check_outs(const char* op, const std::string& key, const std::vector<NDArray>& outs, const Shape& shape);
/// Throws, naming the key, unless `rows` can name rows of an array of this shape in row_sparse_pull().
void check_rows(const std::string& key, const NDArray& rows, const Shape& shape);
/// Copies `part`, which has these rows, to its places in `out`, converting the type.
void copy_rows(NDArray out, const NDArray& rows, const NDArray& part, std::source_location where);
/// Throws if lists that belong together differ in length.
void check_lengths(const char* op, size_t keys, size_t values, const char* what);

/// Throws, naming both keys, if an array that is to be filled shares elements with a value of another key:
/// the result would depend on how keys are combined to messages.
void check_aliases(const char* op, const std::vector<KVKey>& keys, const std::vector<KVStore::Values>& values,
                   const std::vector<KVStore::Values>& outs);

// The arguments of the calls with lists of keys.

using ShapeOfKey = std::function<Shape(const std::string& key)>;
/// `shape_of` returns the shape of a stored key, and throws for an unknown one.
void check_pushpull(const std::vector<KVKey>& keys, const std::vector<KVStore::Values>& values,
                    const std::vector<KVStore::Values>& outs, const KVOptions& options,
                    const ShapeOfKey& shape_of);
void check_broadcast(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                     const std::vector<KVStore::Values>& outs);
void check_broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values);
void check_allreduce(const std::vector<KVKey>& keys, const std::vector<KVStore::Values>& values,
                     const std::vector<NDArray>& outs, const KVOptions& options);

}  // namespace mx::detail
