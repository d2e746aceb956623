// DistAllreduce: flat buffers, their slices, and checksums.
#include <cstring>
#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/call_check.h"
#include "kvstore/checksums.h"
#include "kvstore/collective_op.h"
#include "kvstore/dist_allreduce.h"
#include "kvstore/key_check.h"

namespace mx::detail {

mx::Slice DistAllreduce::slice_of(int64_t elements) const {
  check_elements("slice_of", elements);
  const comm::Slice slice = comm::slice_of(static_cast<size_t>(elements), size(), rank());
  return {static_cast<int64_t>(slice.begin), static_cast<int64_t>(slice.begin + slice.count)};
}

void DistAllreduce::in_slices(const char* op, comm::Collective collective, const KVKey& key,
                              const NDArray& flat, const KVOptions& options) {
  MX_CHECK(flat.rank() == 1 && flat.contiguous(), InvalidArgument, "[", op,
           "] expected a contiguous array of rank 1 for key \"", key.name(), "\", got shape ", flat.shape());
  check_not_recorded(op, key.name(), flat);
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  compare_new_keys(op, {key.name()}, {&flat, 1}, options);
  if (size() == 1) return;
  NDArray near = flat.to(place_of(flat), options.where);
  push_collective(*sequence_, gate_,
                  {.name = op,
                   .what = key.name(),
                   .reads = {near},
                   .writes = {near},
                   .priority = engine_priority(options.priority),
                   .where = options.where,
                   .call = [this_rank = rank(), ranks = size(), near, collective,
                            call = call_options(key.name(), options)](Stream* stream) {
                     comm::Request request{.collective = collective,
                                           .in = memory_of(near, stream),
                                           .out = memory_of(near, stream),
                                           .count = static_cast<size_t>(near.numel()),
                                           .type = comm_type(near.dtype()),
                                           .options = call,
                                           .done = {}};
                     // A sum of true values is true: as bytes, they would add up to 2.
                     if (near.dtype() == bool_) request.options.reduction = comm::Reduction::max;
                     const size_t begin = comm::slice_of(request.count, ranks, this_rank).begin;
                     char* const own = static_cast<char*>(request.out) + begin * comm::size_of(request.type);
                     if (collective == comm::Collective::reduce_scatter) {
                       request.out = own;
                     } else {
                       request.in = own;
                     }
                     return CallSequence::Call{.requests = {request}, .bytes = near.bytes()};
                   }});
  if (&near.impl() != &flat.impl()) NDArray(flat).copy_from(near, options.where);
}

void DistAllreduce::sum_slices(const KVKey& key, const NDArray& flat, const KVOptions& options) {
  in_slices("sum_slices", comm::Collective::reduce_scatter, key, flat, options);
}

void DistAllreduce::gather_slices(const KVKey& key, const NDArray& flat, const KVOptions& options) {
  in_slices("gather_slices", comm::Collective::allgather, key, flat, options);
}

NDArray DistAllreduce::buffer(int64_t elements, DType dtype) {
  check_elements("buffer", elements);
  checked_numel({elements}, size_of(dtype), "buffer");
  const std::lock_guard lock(mutex_);
  // Allocation is a collective call, which the group itself does not compare with other calls. The comparison
  // also ends all earlier calls, so that none is in flight on some ranks only.
  if (size() > 1)
    sequence_->run("buffer",
                   compare_lines("buffer", {concat(elements, " x ", dtype)}, call_options("buffer", {})));
  const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
  std::shared_ptr<void> memory = group_->allocate(bytes > 0 ? bytes : 1);
  void* const data = memory.get();
  return from_external(data, dtype, {elements}, {1},
                       [memory = std::move(memory)]() mutable { memory = nullptr; });
}

void DistAllreduce::check_equal(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                                const NDArray& token, const KVOptions& options) {
  check_lengths("check_equal", keys.size(), values.size(), "a value");
  if (size() == 1 || keys.empty()) return;
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  const auto table = std::make_shared<ChecksumTable>(keys, values, size(), options.where);
  push_collective(*sequence_, gate_,
                  {.name = "check_equal",
                   .what = "checksums",
                   .reads = table->values,
                   .writes = {token},
                   .priority = engine_priority(options.priority),
                   .fence = true,
                   .where = options.where,
                   .call = [table, this_rank = rank(), call = call_options("checksums", options)](Stream*) {
                     uint64_t* const own = table->add(this_rank);
                     return CallSequence::Call{
                         .start =
                             [table, call, own](comm::Communicator& group, CallSequence::Done done) {
                               comm::Request request{.collective = comm::Collective::allgather,
                                                     .in = own,
                                                     .out = table->sums.data(),
                                                     .count = table->sums.size(),
                                                     .type = comm::Type::i64,
                                                     .options = call,
                                                     .done = {}};
                               request.done = std::move(done);
                               group.start(std::move(request));
                             },
                         .verdict = [table] { return table->error(); }};
                   }});
}

}  // namespace mx::detail
