#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "comm/fold.h"
#include "comm/host_name.h"
#include "comm/net/bytes.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // the exception replaces it; other code on this thread is not to blame
  throw DeviceError(
      mx::detail::concat("[nccl] expected ", call, " to succeed, got: ", cudaGetErrorString(error)));
}

bool is_on_device(const void* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();  // plain host memory: forget the error
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

ncclDataType_t nccl_type(Type type) {
  switch (type) {
    case Type::f32:
      return ncclFloat32;
    case Type::f64:
      return ncclFloat64;
    case Type::f16:
      return ncclFloat16;
    case Type::bf16:
      return ncclBfloat16;
    case Type::i8:
      return ncclInt8;
    case Type::u8:
      return ncclUint8;
    case Type::i32:
      return ncclInt32;
    case Type::i64:
      return ncclInt64;
  }
  return ncclFloat32;
}

ncclRedOp_t nccl_op(Reduction reduction) {
  if (reduction == Reduction::min) return ncclMin;
  return reduction == Reduction::max ? ncclMax : ncclSum;
}

constexpr int64_t kAbortMs = 2000;  // how long a failed call waits for the end of its kernels

// The communicators of the process, which fail together.
std::mutex all_mutex;
std::set<NcclCommunicator*>& all() {
  static std::set<NcclCommunicator*>& set = *new std::set<NcclCommunicator*>;
  return set;
}

}  // namespace

NcclCommunicator::NcclCommunicator(const ModuleRequest& request)
    : rank_(request.place.rank),
      size_(request.place.size),
      timeout_ms_(request.timeout_ms),
      deadline_(Deadline::after_ms(request.timeout_ms)),
      running_("the making of a group") {
  MX_CHECK(request.rendezvous != nullptr || size_ == 1, InvalidState,
           "[nccl] expected a rendezvous, through which processes exchange NCCL's id, got none; start the "
           "program with mxrun");
  MX_CHECK(request.messages != nullptr || size_ == 1, InvalidState,
           "[nccl] expected a transport over which calls are compared, got none");
  if (size_ > 1) comparison_.emplace(request.messages);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) devices = 0;
  MX_CHECK(devices > 0, InvalidState, "[nccl] expected a GPU, got none on this host");
  device_ = request.place.local_rank % devices;
  try {
    connect(request);
  } catch (...) {
    // The destructor does not run.
    abandon();
    release();
    throw;
  }
  std::lock_guard lock(all_mutex);
  all().insert(this);
}

void NcclCommunicator::connect(const ModuleRequest& request) {
  check_cuda(cudaSetDevice(device_), "cudaSetDevice");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  const ncclUniqueId id = exchange_id(request);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check_nccl(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config), "ncclCommInitRankConfig");
  wait_for_nccl();
}

// Tells the others this host, and returns the id that rank 0 has made.
ncclUniqueId NcclCommunicator::exchange_id(const ModuleRequest& request) {
  ncclUniqueId id{};
  if (rank_ == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  if (size_ == 1) {
    hosts_.push_back(host_name());
    return id;
  }
  Rendezvous& rendezvous = *request.rendezvous;
  rendezvous.put(request.key + "/host/" + std::to_string(rank_), host_name());
  for (int r = 0; r < size_; ++r)
    hosts_.push_back(rendezvous.get(request.key + "/host/" + std::to_string(r), deadline_));
  if (rank_ == 0) {
    rendezvous.put(request.key + "/id", to_hex({id.internal, sizeof id.internal}));
  } else {
    const std::optional<std::string> bytes = from_hex(rendezvous.get(request.key + "/id", deadline_));
    MX_CHECK(bytes && bytes->size() == sizeof id.internal, ProtocolError, "[nccl] expected an id of ",
             sizeof id.internal, " bytes as hexadecimal digits from rank 0, got something else");
    std::memcpy(id.internal, bytes->data(), sizeof id.internal);
  }
  return id;
}

NcclCommunicator::~NcclCommunicator() {
  finish_calls();
  // In a forked child, neither CUDA nor NCCL may be used.
  if (!in_own_process()) return;
  {
    std::lock_guard lock(all_mutex);
    all().erase(this);
  }
  if (failure() != nullptr || interrupted_.load(std::memory_order_acquire)) {
    abandon();
    return;
  }
  cudaSetDevice(device_);
  try {
    // Finalising waits for the other processes, so it has a deadline as well.
    deadline_ = Deadline::after_ms(timeout_ms_);
    running_ = "the end of a group";
    check_nccl(ncclCommFinalize(comm_), "ncclCommFinalize");
    ncclCommDestroy(comm_);
  } catch (...) {  // also the reason of another group's abort, which may be anything
    abandon();
    return;
  }
  release();
}

// Gives memory and stream back. Not cudaFree(), which waits until the device is idle, and every thread with
// it.
void NcclCommunicator::release() noexcept {
  for (auto& [memory, bytes] : rooms_)
    if (memory != nullptr) (void)cudaFreeAsync(memory, stream_);
  rooms_.clear();
  if (event_ != nullptr) (void)cudaEventDestroy(std::exchange(event_, nullptr));
  if (stream_ != nullptr) (void)cudaStreamDestroy(std::exchange(stream_, nullptr));
  (void)cudaGetLastError();
}

const std::string& NcclCommunicator::type() const {
  static const std::string name = "nccl";
  return name;
}

void NcclCommunicator::check_alive() const {
  if (interrupted_.load(std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    std::rethrow_exception(reason_);
  }
  if (deadline_.passed())
    throw Timeout(mx::detail::concat("[nccl] ", running_,
                                     " did not end in time; another process is lost, stuck, "
                                     "or makes other calls"));
}

void NcclCommunicator::check_nccl(ncclResult_t result, const char* call) {
  if (result == ncclInProgress) return wait_for_nccl();
  if (result == ncclSuccess) return;
  throw CommunicationError(mx::detail::concat("[nccl] expected ", call, " to succeed, got: ",
                                              ncclGetErrorString(result), ": ", ncclGetLastError(comm_)));
}

// Polls until NCCL has processed the last call.
void NcclCommunicator::wait_for_nccl() {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
    if (result == ncclSuccess && state == ncclSuccess) return;
    if (result != ncclSuccess || state != ncclInProgress)
      throw CommunicationError(mx::detail::concat("[nccl] ", running_, " failed: ", ncclGetErrorString(state),
                                                  ": ", ncclGetLastError(comm_)));
    check_alive();
    std::this_thread::yield();
  }
}

// Polls the stream, so that a lost process is noticed while a kernel of NCCL waits for it.
void NcclCommunicator::wait_for_stream() {
  check_cuda(cudaEventRecord(event_, stream_), "cudaEventRecord");
  for (;;) {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "a kernel of NCCL");
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(comm_, &asynchronous);
    if (asynchronous != ncclSuccess && asynchronous != ncclInProgress)
      check_nccl(asynchronous, running_.c_str());
    check_alive();
    std::this_thread::yield();
  }
}

void NcclCommunicator::execute(const Request& request, Deadline deadline) {
  deadline_ = deadline;
  running_ = describe(request);
  try {
    check_alive();
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    if (comparison_) comparison_->compare(request, deadline);
    run_request(request);
    wait_for_stream();
  } catch (...) {
    // Before interrupt(), after which this rank sends nothing any more.
    if (comparison_) comparison_->fail(request, std::current_exception());
    interrupt(std::current_exception());
    abandon();
    throw;
  }
}

// Marks all groups of the process, before the first one is aborted.
void NcclCommunicator::interrupt(std::exception_ptr reason) {
  mark_as_failed(reason);
  std::lock_guard lock(all_mutex);
  for (NcclCommunicator* other : all()) other->mark_as_failed(reason);
}

void NcclCommunicator::mark_as_failed(const std::exception_ptr& reason) {
  {
    std::lock_guard lock(mutex_);
    if (reason_ == nullptr) reason_ = reason;
    interrupted_.store(true, std::memory_order_release);
  }
  if (comparison_) comparison_->abort(reason);
}

// Aborts NCCL's communicator on a thread of its own, because the call may wait for other processes. Waits a
// moment for it and for the stream: as long as a kernel of NCCL runs, it may write into the buffers of the
// call.
void NcclCommunicator::abandon() {
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  const auto aborted = std::make_shared<std::promise<void>>();
  std::thread([comm, aborted] {
    ncclCommAbort(comm);
    aborted->set_value();
  }).detach();
  const Deadline deadline = Deadline::after_ms(kAbortMs);
  (void)aborted->get_future().wait_for(std::chrono::milliseconds(kAbortMs));
  while (stream_ != nullptr && cudaStreamQuery(stream_) == cudaErrorNotReady && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  (void)cudaGetLastError();
}

void NcclCommunicator::run_request(const Request& request) {
  const size_t width = size_of(request.type), bytes = request.count * width;
  const size_t ranks = static_cast<size_t>(size_);
  const size_t slice = slice_of(request.count, size_, rank_).count * width;
  switch (request.collective) {
    case Collective::allreduce:
      return request.options.order == Order::any ? allreduce_any(request) : allreduce_in_rank_order(request);
    case Collective::reduce_scatter: {
      const void* in = on_device(request.in, bytes, 0);
      void* out = for_result(request.out, slice, 1);
      fold_slice(request, in, out);
      return to_user(out, request.out, slice);
    }
    case Collective::allgather: {
      const void* in = on_device(request.in, slice, 0);
      void* out = for_result(request.out, bytes, 1);
      gather_slices(request, in, out);
      return to_user(out, request.out, bytes);
    }
    case Collective::broadcast: {
      const void* in = rank_ == request.peer ? on_device(request.in, bytes, 0) : nullptr;
      void* out = for_result(request.out, bytes, 1);
      check_nccl(ncclBroadcast(in, out, bytes, ncclUint8, request.peer, comm_, stream_), "ncclBroadcast");
      return to_user(out, request.out, bytes);
    }
    case Collective::all_to_all: {
      const void* const in = on_device(request.in, ranks * bytes, 0);
      void* const result = for_result(request.out, ranks * bytes, 1);
      void* const out = in == result ? room(2, ranks * bytes) : result;
      exchange(parts_of_all_to_all(request, size_, in, out));
      if (out != result)
        check_cuda(cudaMemcpyAsync(result, out, ranks * bytes, cudaMemcpyDeviceToDevice, stream_),
                   "cudaMemcpy");
      return to_user(result, request.out, ranks * bytes);
    }
    case Collective::barrier: {
      void* flag = room(0, 4);
      return check_nccl(ncclAllReduce(flag, flag, 1, ncclInt32, ncclMax, comm_, stream_), "ncclAllReduce");
    }
    case Collective::send:
      return exchange({{on_device(request.in, bytes, 0), nullptr, bytes, 0, request.peer}});
    case Collective::receive: {
      void* out = for_result(request.out, bytes, 1);
      exchange({{nullptr, out, 0, bytes, request.peer}});
      return to_user(out, request.out, bytes);
    }
  }
}

void NcclCommunicator::allreduce_any(const Request& request) {
  const size_t bytes = request.count * size_of(request.type);
  const void* in = on_device(request.in, bytes, 0);
  void* out = for_result(request.out, bytes, 1);
  check_nccl(ncclAllReduce(in, out, request.count, nccl_type(request.type),
                           nccl_op(request.options.reduction), comm_, stream_),
             "ncclAllReduce");
  to_user(out, request.out, bytes);
}

void NcclCommunicator::allreduce_in_rank_order(const Request& request) {
  const size_t width = size_of(request.type), bytes = request.count * width;
  const void* in = on_device(request.in, bytes, 0);
  void* out = for_result(request.out, bytes, 1);
  const Slice mine = slice_of(request.count, size_, rank_);
  void* folded = room(3, mine.count * width);
  fold_slice(request, in, folded);
  gather_slices(request, folded, out);
  to_user(out, request.out, bytes);
}

// Receives the own slice of all ranks, folds it on the host, and copies the result to `out` on the device.
void NcclCommunicator::fold_slice(const Request& request, const void* in, void* out) {
  const size_t width = size_of(request.type), ranks = static_cast<size_t>(size_);
  const size_t bytes = slice_of(request.count, size_, rank_).count * width;
  void* const received = room(2, ranks * bytes);
  exchange(parts_of_slices(request, rank_, size_, in, received));
  std::vector<char> host(ranks * bytes);
  to_user(received, host.data(), host.size());
  wait_for_stream();
  std::vector<const void*> values;
  for (size_t r = 0; r < ranks; ++r) values.push_back(host.data() + r * bytes);
  fold_ranks(host.data(), values.data(), size_, bytes / width, request.type, request.options.reduction);
  check_cuda(cudaMemcpyAsync(out, host.data(), bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpy");
  wait_for_stream();
}

void NcclCommunicator::gather_slices(const Request& request, const void* in, void* out) {
  exchange(parts_of_gather(request, rank_, size_, in, out));
}

void NcclCommunicator::exchange(const std::vector<Part>& parts) {
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  // The group is ended in any case. Otherwise later calls of this thread would belong to it and never start.
  ncclResult_t result = ncclSuccess;
  const auto note = [&result](ncclResult_t code) {
    if (result == ncclSuccess && code != ncclInProgress) result = code;
  };
  for (const Part& part : parts) {
    if (part.in_bytes > 0) note(ncclSend(part.in, part.in_bytes, ncclUint8, part.peer, comm_, stream_));
    if (part.out_bytes > 0) note(ncclRecv(part.out, part.out_bytes, ncclUint8, part.peer, comm_, stream_));
  }
  const ncclResult_t ended = ncclGroupEnd();
  check_nccl(result, "ncclSend and ncclRecv");
  check_nccl(ended, "ncclGroupEnd");
}

void* NcclCommunicator::room(size_t slot, size_t bytes) {
  if (rooms_.size() <= slot) rooms_.resize(slot + 1);
  auto& [memory, size] = rooms_[slot];
  if (size < bytes || memory == nullptr) {
    // In the order of the stream: cudaFree() would wait until the device is idle, perhaps for another rank.
    if (memory != nullptr)
      check_cuda(cudaFreeAsync(std::exchange(memory, nullptr), stream_), "cudaFreeAsync");
    check_cuda(cudaMallocAsync(&memory, std::max(bytes, size_t{256}), stream_), "cudaMallocAsync");
    size = bytes;
  }
  return memory;
}

const void* NcclCommunicator::on_device(const void* data, size_t bytes, size_t slot) {
  if (bytes == 0 || is_on_device(data)) return data;
  void* const copy = room(slot, bytes);
  check_cuda(cudaMemcpyAsync(copy, data, bytes, cudaMemcpyHostToDevice, stream_), "cudaMemcpy");
  return copy;
}

void* NcclCommunicator::for_result(void* data, size_t bytes, size_t slot) {
  return bytes == 0 || is_on_device(data) ? data : room(slot, bytes);
}

// A copy to host memory that is not page-locked blocks the caller until the work before it has ended, which
// would be beyond the deadline if another process is lost. So the copy starts when the stream has nothing
// else to do.
void NcclCommunicator::to_user(const void* from, void* to, size_t bytes) {
  if (from == to || bytes == 0) return;
  wait_for_stream();
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "cudaMemcpy");
}

}  // namespace mx::comm
