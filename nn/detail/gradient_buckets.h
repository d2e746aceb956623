// GradientBuckets: the sums of gradients over the processes of a store, for nn::Trainer. Internal.
//
// Parameters are put into buckets of about `bucket_bytes`, in the order in which the backward pass computes
// their gradients: the last ones first. The gradients of a bucket are copied into one flat buffer as they
// become ready. The buffer comes from the store, which may sum out of it without a further copy. So one
// message carries many small gradients, and the sum of a bucket runs while the backward pass computes the
// gradients of the next one.
//
//   parameters     w0   b0   w1   b1   w2   b2
//   buckets       [   2    ][    1   ][   0   ]
//
// Sharded: each process gets the sum of its slice of each bucket only, updates that part of the parameters,
// and sends it to the others. A portion is the part of a parameter that lies in the slice of this process:
//
//   bucket         [ w1 w1 w1 w1 b1 b1 | b1 w2 w2 w2 w2 w2 ]      2 processes
//   portions         all of w1, 2 of b1    1 of b1, all of w2
//
// Thread-safety: one thread at a time. All processes make the same calls.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"
#include "operators/parameter.h"
#include "optim/optimizer.h"

namespace mx::nn::detail {

/// Returns the type of the sum of gradients: f32 for f16 and bf16, in which a sum could overflow. Optimisers
/// accept such gradients.
DType gradient_type(const NDArray& parameter);
/// Returns the priority of operations on parameter i of `count`. Every priority is above 0, that of the other
/// operations of training. Parameters that the next forward pass needs first have the highest.
int parameter_priority(size_t i, size_t count);

/// The elements [begin, end) of a flat array.
struct ElementRange {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin == end; }
  Slice slice(int64_t offset = 0) const { return {begin + offset, end + offset}; }
};

struct GradientBucket {
  std::string key;
  int priority = 0;
  std::vector<size_t> members{};              // indices of parameters, ascending in the flat buffer
  std::vector<int64_t> begins{};              // of each member in the flat buffer
  std::vector<NDArray> flats{};               // of each replica
  std::vector<std::vector<NDArray>> views{};  // of each replica: the members' parts of the flat buffer
  ElementRange own{};                         // sharded: the slice of this process
};

class GradientBuckets {
 public:
  struct Options {
    std::string prefix;  ///< of keys
    int64_t bucket_bytes = 0;
    bool sharded = false;
  };
  /// Sharded: makes the buckets at once, because the optimiser is made of portions(). Throws InvalidArgument
  /// for several replicas then, and for a parameter that is not contiguous.
  GradientBuckets(const std::vector<Parameters>& replicas, std::shared_ptr<KVStore> store, Options options);

  /// Makes new buckets if parameters have been moved or frozen since. Returns true if it did. `updated[i]` is
  /// false for parameters that the optimiser does not have. Sharded: throws InvalidState if parameters have
  /// been moved.
  bool follow(const std::vector<bool>& updated);
  const std::vector<GradientBucket>& buckets() const { return buckets_; }

  /// Pushes the sums of all buckets. Returns the sum of each parameter's gradient (sharded: of each portion),
  /// or an empty handle for parameters in no bucket. A parameter without a gradient counts as zeros, because
  /// another process may have one.
  std::vector<NDArray> sum_gradients(std::source_location where);

  // Sharded only.

  /// Returns the portion of each parameter, flat, over the memory of the parameter. A portion requires a
  /// gradient as its parameter does. Parameters in no bucket are whole, in their own shape.
  const Parameters& portions() const { return portions_; }
  /// Copies the portions of all processes into all parameters, those of the first layers first.
  void gather_parameters(std::source_location where);
  /// Returns whole arrays from one array for each parameter in the shape of its portion: empty handles stay
  /// empty. Collective.
  std::vector<NDArray> gather(const std::string& what, const std::vector<NDArray>& portions,
                              std::source_location where);
  /// Returns the portion of an array in the shape of parameter i.
  NDArray portion_of(size_t i, const NDArray& whole) const;
  bool in_bucket(size_t i) const { return in_bucket_[i]; }

 private:
  void make(const std::vector<bool>& included);
  void close(GradientBucket bucket);
  void make_portions();

  std::vector<Parameters> replicas_;
  std::shared_ptr<KVStore> store_;
  const Options options_;
  std::vector<GradientBucket> buckets_;
  std::vector<const void*> arrays_;  // of each parameter, when the buckets were made
  std::vector<bool> in_bucket_;
  Parameters portions_;
  std::vector<ElementRange> ranges_;  // of each portion in its flat parameter
};

}  // namespace mx::nn::detail
