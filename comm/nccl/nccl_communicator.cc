#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "comm/fold.h"
#include "comm/host_name.h"
#include "comm/net/bytes.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/device/cuda/cuda_error.h"

namespace mx::comm {
namespace {

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // the exception replaces it; other code on this thread is not to blame
  throw DeviceError(
      mx::detail::concat("[nccl] expected ", call, " to succeed, got: ", cudaGetErrorString(error)));
}

constexpr int kHost = -1;

// The device that owns the memory, or kHost.
int owner_of(const void* data) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();  // plain host memory: forget the error
    return kHost;
  }
  const bool on_device = attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return on_device ? attributes.device : kHost;
}

// NCCL accesses the buffers of other ranks of the process directly, unless this variable forbids it. Arrays
// are memory of CUDA's pools, which other GPUs may not access before a pool is shared with them, so the
// access would lose the device. A program that shares its memory may set the variable to 0. NCCL reads it
// when it connects the first ranks.
void forbid_direct_access() {
  static const bool done = setenv("NCCL_P2P_DIRECT_DISABLE", "1", 0) == 0;
  (void)done;
}

bool is_on_device(const void* data) { return owner_of(data) != kHost; }

bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
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

constexpr int kQuickPolls = 1000;   // before a thread that waits for the stream sleeps between its looks
constexpr int64_t kAbortMs = 2000;  // how long a failed call waits for the end of its kernels

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
  handles_.device = request.place.local_rank % devices;
  try {
    connect(request);
  } catch (...) {
    // The destructor does not run.
    abandon(handles_);
    std::vector<NcclHandles> members = leave_members(id_, this, std::move(handles_));
    end(members);
    throw;
  }
}

void NcclCommunicator::connect(const ModuleRequest& request) {
  forbid_direct_access();
  const CudaGuard guard(device_id());
  check_cuda(cudaStreamCreateWithFlags(&handles_.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  check_cuda(cudaEventCreateWithFlags(&handles_.event, cudaEventDisableTiming), "cudaEventCreate");
  const ncclUniqueId id = exchange_id(request);
  id_.assign(id.internal, sizeof id.internal);
  join_members(id_, this);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check_nccl(ncclCommInitRankConfig(&handles_.comm, size_, id, rank_, &config), "ncclCommInitRankConfig");
  wait_for_nccl(handles_.comm);
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
  if (failure() != nullptr || interrupted_.load(std::memory_order_acquire)) abandon(handles_);
  std::vector<NcclHandles> members = leave_members(id_, this, std::move(handles_));
  comparison_.reset();  // from now on the other ranks know that this one is gone
  end(members);
}

// Ends the communicators of NCCL that have not been aborted. All begin to end before the first is waited for,
// because each may wait for the others.
void NcclCommunicator::end(std::vector<NcclHandles>& members) {
  const auto is_aborted = [](const NcclHandles& member) { return member.comm == nullptr; };
  // If one rank was aborted, the others would wait for it.
  bool good = std::none_of(members.begin(), members.end(), is_aborted);
  deadline_ = Deadline::after_ms(timeout_ms_);
  running_ = "the end of a group";
  try {
    for (NcclHandles& member : members) {
      if (!good) break;
      const CudaGuard guard(member.device);
      const ncclResult_t result = ncclCommFinalize(member.comm);
      good = result == ncclSuccess || result == ncclInProgress;
    }
    for (NcclHandles& member : members)
      if (good) wait_for_nccl(member.comm);
  } catch (...) {  // also the reason of another group's abort, which may be anything
    good = false;
  }
  for (NcclHandles& member : members) {
    const CudaGuard guard(member.device);
    if (good) {
      ncclCommDestroy(member.comm);
      member.release();
    } else {
      // Its kernels may still run, so memory and stream stay.
      abandon(member);
    }
  }
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
  if (result == ncclInProgress) return wait_for_nccl(handles_.comm);
  if (result == ncclSuccess) return;
  throw CommunicationError(mx::detail::concat("[nccl] expected ", call,
                                              " to succeed, got: ", ncclGetErrorString(result), ": ",
                                              ncclGetLastError(handles_.comm)));
}

// Polls until NCCL has processed the last call.
void NcclCommunicator::wait_for_nccl(ncclComm_t comm) {
  for (;;) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = ncclCommGetAsyncError(comm, &state);
    if (result == ncclSuccess && state == ncclSuccess) return;
    if (result != ncclSuccess || state != ncclInProgress)
      throw CommunicationError(mx::detail::concat("[nccl] ", running_, " failed: ", ncclGetErrorString(state),
                                                  ": ", ncclGetLastError(comm)));
    check_alive();
    std::this_thread::yield();
  }
}

// Polls the stream, so that a lost process is noticed while a kernel of NCCL waits for it.
void NcclCommunicator::wait_for_stream() {
  check_cuda(cudaEventRecord(handles_.event, handles_.stream), "cudaEventRecord");
  for (int polls = 0;; ++polls) {
    const cudaError_t state = cudaEventQuery(handles_.event);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "a kernel of NCCL");
    ncclResult_t asynchronous = ncclSuccess;
    ncclCommGetAsyncError(handles_.comm, &asynchronous);
    if (asynchronous != ncclSuccess && asynchronous != ncclInProgress)
      check_nccl(asynchronous, running_.c_str());
    check_alive();
    // Work ahead of the call, such as a backward pass, may take long.
    if (polls < kQuickPolls)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void NcclCommunicator::execute(const Request& request, Deadline deadline) {
  deadline_ = deadline;
  running_ = describe(request);
  try {
    check_alive();
    const CudaGuard guard(device_id());
    if (comparison_) comparison_->compare(request, deadline);
    order_after(request);
    run_request(request);
    wait_for_stream();
  } catch (...) {
    // Before interrupt(), after which this rank sends nothing any more.
    if (comparison_) comparison_->fail(request, std::current_exception());
    interrupt(std::current_exception());
    abandon(handles_);
    throw;
  }
}

void NcclCommunicator::check(const Request& request) const {
  for (const void* buffer : {request.in, static_cast<const void*>(request.out)}) {
    const int owner = buffer == nullptr || request.count == 0 ? kHost : owner_of(buffer);
    MX_CHECK(owner == kHost || owner == device_id(), InvalidArgument, "[", to_string(request.collective),
             "] expected memory of the host or of gpu(", device_id(), "), got memory of gpu(", owner,
             "), for ", describe(request));
  }
}

void NcclCommunicator::order_after(const Request& request) {
  if (!request.work_ahead) return;
  const auto ahead = static_cast<cudaStream_t>(request.work_ahead());
  check_cuda(cudaEventRecord(handles_.event, ahead), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(handles_.stream, handles_.event, 0), "cudaStreamWaitEvent");
}

// Marks all groups of the GPU, before the first one is aborted.
void NcclCommunicator::interrupt(std::exception_ptr reason) {
  mark_as_failed(reason);
  interrupt_members(device_id(), reason);
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
void NcclCommunicator::abandon(NcclHandles& handles) {
  const ncclComm_t comm = std::exchange(handles.comm, nullptr);
  if (comm == nullptr) return;
  const auto aborted = std::make_shared<std::promise<void>>();
  try {
    std::thread([comm, aborted] {
      ncclCommAbort(comm);
      aborted->set_value();
    }).detach();
  } catch (const std::system_error&) {
    return;  // no more threads: the communicator stays behind
  }
  const Deadline deadline = Deadline::after_ms(kAbortMs);
  (void)aborted->get_future().wait_for(std::chrono::milliseconds(kAbortMs));
  while (handles.stream != nullptr && cudaStreamQuery(handles.stream) == cudaErrorNotReady &&
         !deadline.passed())
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
      const void* const place =
          offset_by(out, slice_of(request.count, size_, rank_).begin * size_of(request.type));
      // Messages may not overlap what others write meanwhile.
      if (in != place && overlap(in, slice, out, bytes)) in = copied(in, slice, 0);
      gather_slices(request, in, out);
      return to_user(out, request.out, bytes);
    }
    case Collective::broadcast: {
      const void* in = rank_ == request.peer ? on_device(request.in, bytes, 0) : nullptr;
      void* out = for_result(request.out, bytes, 1);
      check_nccl(ncclBroadcast(in, out, bytes, ncclUint8, request.peer, handles_.comm, handles_.stream),
                 "ncclBroadcast");
      return to_user(out, request.out, bytes);
    }
    case Collective::all_to_all: {
      const void* const in = on_device(request.in, ranks * bytes, 0);
      void* const result = for_result(request.out, ranks * bytes, 1);
      void* const out = in == result ? room(2, ranks * bytes) : result;
      exchange(parts_of_all_to_all(request, size_, in, out));
      if (out != result)
        check_cuda(cudaMemcpyAsync(result, out, ranks * bytes, cudaMemcpyDeviceToDevice, handles_.stream),
                   "cudaMemcpy");
      return to_user(result, request.out, ranks * bytes);
    }
    case Collective::barrier: {
      void* flag = room(0, 4);
      return check_nccl(ncclAllReduce(flag, flag, 1, ncclInt32, ncclMax, handles_.comm, handles_.stream),
                        "ncclAllReduce");
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
                           nccl_op(request.options.reduction), handles_.comm, handles_.stream),
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
  check_cuda(cudaMemcpyAsync(out, host.data(), bytes, cudaMemcpyHostToDevice, handles_.stream), "cudaMemcpy");
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
    if (part.peer == rank_ && part.in == part.out) continue;  // the data is in its place
    if (part.in_bytes > 0)
      note(ncclSend(part.in, part.in_bytes, ncclUint8, part.peer, handles_.comm, handles_.stream));
    if (part.out_bytes > 0)
      note(ncclRecv(part.out, part.out_bytes, ncclUint8, part.peer, handles_.comm, handles_.stream));
  }
  const ncclResult_t ended = ncclGroupEnd();
  check_nccl(result, "ncclSend and ncclRecv");
  check_nccl(ended, "ncclGroupEnd");
}

void* NcclCommunicator::room(size_t slot, size_t bytes) {
  if (handles_.rooms.size() <= slot) handles_.rooms.resize(slot + 1);
  auto& [memory, size] = handles_.rooms[slot];
  if (size < bytes || memory == nullptr) {
    // In the order of the stream: cudaFree() would wait until the device is idle, perhaps for another rank.
    if (memory != nullptr)
      check_cuda(cudaFreeAsync(std::exchange(memory, nullptr), handles_.stream), "cudaFreeAsync");
    check_cuda(cudaMallocAsync(&memory, std::max(bytes, size_t{256}), handles_.stream), "cudaMallocAsync");
    size = bytes;
  }
  return memory;
}

const void* NcclCommunicator::on_device(const void* data, size_t bytes, size_t slot) {
  return bytes == 0 || is_on_device(data) ? data : copied(data, bytes, slot);
}

const void* NcclCommunicator::copied(const void* data, size_t bytes, size_t slot) {
  void* const copy = room(slot, bytes);
  const cudaMemcpyKind kind = is_on_device(data) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  check_cuda(cudaMemcpyAsync(copy, data, bytes, kind, handles_.stream), "cudaMemcpy");
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
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handles_.stream), "cudaMemcpy");
}

}  // namespace mx::comm
