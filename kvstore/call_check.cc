#include "kvstore/call_check.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/array_impl.h"
#include "operators/indexing.h"
#include "operators/parameter.h"

namespace mx::detail {

CallScope::CallScope(const KVOptions& options) : priority_(engine_priority(options.priority)) {
  check_timeout(options.timeout_ms);
  MX_CHECK(options.reduce == KVReduce::sum || options.reduce == KVReduce::mean, InvalidArgument,
           "[KVStore] expected KVReduce::sum or KVReduce::mean, got ", static_cast<int>(options.reduce));
}

void check_timeout(int64_t timeout_ms) {
  MX_CHECK(timeout_ms >= 0, InvalidArgument, "[KVStore] expected a timeout_ms of at least 0, got ",
           timeout_ms);
}

void check_elements(const char* op, int64_t elements) {
  MX_CHECK(elements >= 0, InvalidArgument, "[", op, "] expected a number of elements of at least 0, got ",
           elements);
}

void check_values(const char* op, const std::string& key, const std::vector<NDArray>& values,
                  const Shape& shape, KVReduce reduce) {
  MX_CHECK(!values.empty(), InvalidArgument, "[", op, "] expected one value or more for key \"", key,
           "\", got none");
  for (size_t i = 0; i < values.size(); ++i)
    MX_CHECK(values[i].shape() == shape, InvalidArgument, "[", op, "] expected values of the shape ", shape,
             " of key \"", key, "\", got value ", i, " of shape ", values[i].shape());
  bool real = reduce == KVReduce::sum;
  for (const NDArray& value : values) real = real || is_floating(value.dtype());
  MX_CHECK(real, InvalidArgument, "[", op, "] expected values in floating point for the mean of key \"", key,
           "\", got ", values[0].dtype());
}

void check_not_recorded(const char* op, const std::string& key, const NDArray& out) {
  MX_CHECK(!out.requires_grad() || trains(out), InvalidState, "[", op,
           "] expected an array that no recorded operation has ", "computed to take the value of key \"", key,
           "\", because stores are not recorded, got one of shape ", out.shape(),
           "; give its detach(), or sum with nn::all_reduce(), which is recorded");
}

void check_outs(const char* op, const std::string& key, const std::vector<NDArray>& outs,
                const Shape& shape) {
  for (size_t i = 0; i < outs.size(); ++i) {
    MX_CHECK(outs[i].shape() == shape, InvalidArgument, "[", op, "] expected arrays of the shape ", shape,
             " of key \"", key, "\", got array ", i, " of shape ", outs[i].shape());
    check_not_recorded(op, key, outs[i]);
  }
}

void check_rows(const std::string& key, const NDArray& rows, const Shape& shape) {
  MX_CHECK(shape.rank() >= 1 && rows.rank() == 1 && is_integral(rows.dtype()), InvalidArgument,
           "[row_sparse_pull] expected integers (n,) that name rows of key \"", key, "\", ", shape, ", got ",
           rows.dtype(), ' ', rows.shape());
}

void copy_rows(NDArray out, const NDArray& rows, const NDArray& part, std::source_location where) {
  index_copy_(out, rows.to(out.context(), where), part.to(out.context(), where), 0, where);
}

void check_lengths(const char* op, size_t keys, size_t values, const char* what) {
  MX_CHECK(keys == values, InvalidArgument, "[", op, "] expected ", what, " for each of ", keys,
           " keys, got ", values);
}

namespace {

/// A sum of this many terms, each of them a stride times an index.
struct Steps {
  int64_t stride, most;  // in bytes, above 0; of the index
};

/// Whether indices exist with which the steps from `begin` on add up to a number between `low` and `high`.
/// The strides fall. Returns true if `work` runs out before this is known.
bool reaches(const std::vector<Steps>& steps, size_t begin, int64_t low, int64_t high, int& work) {
  if (high < 0) return false;
  if (low <= 0) return true;
  if (begin == steps.size()) return false;
  int64_t rest = 0;  // the most that the later steps add
  for (size_t i = begin + 1; i < steps.size(); ++i) rest += steps[i].stride * steps[i].most;
  const auto [stride, most] = steps[begin];
  const int64_t first = low > rest ? (low - rest + stride - 1) / stride : 0;
  for (int64_t index = std::min(most, high / stride); index >= first; --index) {
    if (--work < 0) return true;
    if (reaches(steps, begin + 1, low - index * stride, high - index * stride, work)) return true;
  }
  return false;
}

/// Whether two arrays of one storage have an element in common. True as well if that would take long to find
/// out, which takes strides that are no multiples of each other.
bool share_elements(const ArrayImpl& a, const ArrayImpl& b) {
  const ByteRange x = byte_range(a), y = byte_range(b);
  if (x.first >= y.last || y.first >= x.last || x.first == x.last || y.first == y.last) return false;
  std::map<int64_t, int64_t, std::greater<>> most_of;  // by stride
  for (const ArrayImpl* array : {&a, &b})
    for (int axis = 0; axis < array->shape.rank(); ++axis) {
      const int64_t stride = array->strides[axis] * static_cast<int64_t>(size_of(array->dtype));
      if (stride != 0) most_of[std::abs(stride)] += array->shape[axis] - 1;
    }
  std::vector<Steps> steps;
  int64_t whole = 0;
  for (const auto& [stride, most] : most_of) {
    steps.push_back({stride, most});
    whole += stride * most;
  }
  // An element of a begins at x.first + s, one of b at y.last - size_of(b) - t with sums s and t of steps.
  // They overlap if s + t lies between these two.
  const int64_t size_a = static_cast<int64_t>(size_of(a.dtype)),
                size_b = static_cast<int64_t>(size_of(b.dtype));
  const int64_t distance = y.last - size_b - x.first;
  int work = 10000;
  return reaches(steps, 0, std::max<int64_t>(0, distance - size_a + 1),
                 std::min(whole, distance + size_b - 1), work);
}

}  // namespace

void check_aliases(const char* op, const std::vector<KVKey>& keys, const std::vector<KVStore::Values>& values,
                   const std::vector<KVStore::Values>& outs) {
  if (keys.size() < 2) return;
  std::unordered_multimap<const void*, std::pair<size_t, const NDArray*>> of_storage;
  for (size_t i = 0; i < values.size(); ++i)
    for (const NDArray& value : values[i].list())
      of_storage.emplace(value.impl().storage.get(), std::pair(i, &value));
  for (size_t i = 0; i < outs.size(); ++i) {
    for (const NDArray& out : outs[i].list()) {
      const auto [begin, end] = of_storage.equal_range(out.impl().storage.get());
      for (auto it = begin; it != end; ++it) {
        const auto& [k, value] = it->second;
        MX_CHECK(
            k == i || !share_elements(out.impl(), value->impl()), InvalidArgument, "[", op,
            "] expected arrays to fill that share no memory with the values of other keys, got one of key \"",
            keys[i].name(), "\" that does with a value of key \"", keys[k].name(), '"');
      }
    }
  }
}

void check_pushpull(const std::vector<KVKey>& keys, const std::vector<KVStore::Values>& values,
                    const std::vector<KVStore::Values>& outs, const KVOptions& options,
                    const ShapeOfKey& shape_of) {
  check_lengths("pushpull", keys.size(), values.size(), "values");
  check_lengths("pushpull", keys.size(), outs.size(), "arrays to fill");
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::string& key = keys[i].name();
    const Shape shape = shape_of(key);
    check_values("push", key, values[i].list(), shape, options.reduce);
    check_outs("pull", key, outs[i].list(), shape);
  }
  check_aliases("pushpull", keys, values, outs);
}

void check_broadcast(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                     const std::vector<KVStore::Values>& outs) {
  check_lengths("broadcast", keys.size(), values.size(), "a value");
  check_lengths("broadcast", keys.size(), outs.size(), "arrays to fill");
  for (size_t i = 0; i < keys.size(); ++i)
    check_outs("broadcast", keys[i].name(), outs[i].list(), values[i].shape());
}

void check_broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values) {
  check_lengths("broadcast_from_first", keys.size(), values.size(), "a value");
  for (size_t i = 0; i < keys.size(); ++i)
    check_not_recorded("broadcast_from_first", keys[i].name(), values[i]);
}

void check_allreduce(const std::vector<KVKey>& keys, const std::vector<KVStore::Values>& values,
                     const std::vector<NDArray>& outs, const KVOptions& options) {
  check_lengths("allreduce", keys.size(), values.size(), "values");
  check_lengths("allreduce", keys.size(), outs.size(), "an array to fill");
  for (size_t i = 0; i < keys.size(); ++i) {
    check_values("allreduce", keys[i].name(), values[i].list(), outs[i].shape(), options.reduce);
    check_not_recorded("allreduce", keys[i].name(), outs[i]);
  }
  check_aliases("allreduce", keys, values, {outs.begin(), outs.end()});
}

}  // namespace mx::detail
