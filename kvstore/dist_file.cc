// DistAllreduce: barriers, and files that rank 0 writes and reads.
#include <algorithm>
#include <exception>
#include <utility>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "kvstore/call_check.h"
#include "kvstore/collective_op.h"
#include "kvstore/dist_allreduce.h"
#include "kvstore/packed_error.h"
#include "kvstore/sum.h"
#include "ndarray/grad_mode.h"
#include "ndarray/io/mapped_file.h"
#include "ndarray/io/safetensors.h"

namespace mx::detail {

void DistAllreduce::share_bytes(const std::string& what, std::string& bytes, int64_t patience) {
  const auto broadcast = [&](void* data, size_t count, int64_t times) {
    comm::CallOptions options = call_options(what, {});
    if (options.timeout_ms <= 0) options.timeout_ms = group_->default_timeout_ms();
    options.timeout_ms *= times;
    sequence_->run(what, {.requests = {{.collective = comm::Collective::broadcast,
                                        .in = data,
                                        .out = data,
                                        .count = count,
                                        .type = comm::Type::u8,
                                        .options = options,
                                        .done = {}}}});
  };
  uint64_t count = bytes.size();
  broadcast(&count, sizeof count, rank() == 0 ? 1 : patience);
  bytes.resize(count);
  if (count > 0) broadcast(bytes.data(), count, 1);
}

void DistAllreduce::on_first(const std::string& what, const std::function<void()>& work) {
  std::exception_ptr error;
  if (rank() == 0) {
    try {
      work();
    } catch (...) {
      error = std::current_exception();
    }
  }
  std::string packed = pack_error(error);
  // Rank 0 may take long to write or to read a file. If it is lost meanwhile, the others learn of it.
  constexpr int64_t kPatience = 60;
  try {
    share_bytes(what, packed, kPatience);
  } catch (...) {
    if (error) std::rethrow_exception(error);  // what happened here first, with its own type
    throw;
  }
  if (error) std::rethrow_exception(error);
  if (!packed.empty()) throw_packed_error(packed);
}

void DistAllreduce::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  on_first("save", [&] {
    FileMetadata metadata;
    const NamedArrays arrays = table_.state(metadata);
    save_safetensors(path, arrays, metadata);
  });
}

void DistAllreduce::load(const std::string& path) {
  const NoGrad pause;
  const std::lock_guard lock(mutex_);
  std::string bytes;
  on_first("load", [&] {
    const io::MappedFile file(path, io::MappedFile::Access::read_only, io::MappedFile::How::read);
    io::parse_safetensors(file.bytes(), path);
    bytes.assign(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  });
  share_bytes("load", bytes);
  const io::Safetensors content = io::parse_safetensors(std::as_bytes(std::span(bytes)), path);
  NamedArrays arrays;
  for (const io::TensorRecord& record : content.tensors)
    arrays.emplace_back(record.name,
                        from_host(bytes.data() + record.offset, record.dtype, record.shape, cpu()));
  table_.load(arrays, content.metadata, path);
}

NamedArrays DistAllreduce::state_dict() {
  const std::lock_guard lock(mutex_);
  return table_.copy_state();
}

void DistAllreduce::load_state_dict(const NamedArrays& state) {
  const std::lock_guard lock(mutex_);
  table_.load_copy(state);
}

void DistAllreduce::barrier(int64_t timeout_ms) {
  check_timeout(timeout_ms);
  comm::CallOptions options = call_options("barrier", {.timeout_ms = timeout_ms});
  if (options.timeout_ms <= 0) options.timeout_ms = group_->default_timeout_ms();
  const comm::Deadline deadline = comm::Deadline::after_ms(options.timeout_ms);
  std::exception_ptr error;
  bool ended = true;
  try {
    // A pending call has the same limit, and a moment beyond it in which it names the processes that did not
    // come.
    ended = current_engine().wait_all(options.timeout_ms + kNamingMs);
  } catch (...) {
    error = std::current_exception();  // the others still wait for this rank
  }
  if (!ended) {
    error = std::make_exception_ptr(
        Timeout(concat("[barrier] expected all operations to end within ", options.timeout_ms, " ms, got ",
                       current_engine().stats().in_flight, " in flight", sequence_->what_waits())));
    // This rank misses a barrier that the others make, so its calls no longer belong to theirs.
    group_->abort(error);
    std::rethrow_exception(error);
  }
  options.timeout_ms = std::max<int64_t>(deadline.left_ms(), 1);
  comm::Request request{.collective = comm::Collective::barrier, .options = options, .done = {}};
  try {
    sequence_->run("barrier", {.requests = {std::move(request)}});
  } catch (...) {
    if (error) std::rethrow_exception(error);  // what happened here first
    throw;
  }
  if (error) std::rethrow_exception(error);
}

void DistAllreduce::push_barrier(const NDArray& token, const KVOptions& options) {
  check_timeout(options.timeout_ms);
  const std::lock_guard lock(mutex_);
  push_collective(*sequence_, gate_,
                  {.name = "barrier",
                   .what = "barrier",
                   .reads = {token},
                   .writes = {token},
                   .priority = engine_priority(options.priority),
                   .fence = true,
                   .where = options.where,
                   .call = [call = call_options("barrier", options)](Stream*) {
                     comm::Request request{
                         .collective = comm::Collective::barrier, .options = call, .done = {}};
                     return CallSequence::Call{.requests = {std::move(request)}};
                   }});
}

}  // namespace mx::detail
