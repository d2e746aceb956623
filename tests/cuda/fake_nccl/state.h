// The state of the stand-in for NCCL. Private to tests/cuda/fake_nccl/. One mutex guards all of it.
//
// The mutex is never held during a call of the stand-in for CUDA that may wait: the kernels of NCCL need it,
// and cudaFree() lets all threads wait for kernels.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/fake_nccl/fake_nccl.h"

namespace mx::fake_nccl {

enum class Kind : uint8_t { allreduce, reduce_scatter, allgather, broadcast, send, receive };

/// One operation of one rank.
struct Operation {
  Kind kind;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;         // or root
  uint64_t number = 0;  // among the collectives of the communicator, or the messages of the pair
  bool started = false, ended = false;
};

/// The operations of one rank that one group has given to one stream: one kernel.
struct Launch {
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<std::shared_ptr<Operation>> operations;
  uint64_t number = 0;  // in the order of the communicator
  bool enqueued = false, ended = false;
  std::chrono::steady_clock::time_point since{};  // when the kernel has started
};

/// All ranks of one unique id.
struct World {
  uint64_t id = 0;
  std::vector<ncclComm_t> members;  // by rank; null until the rank comes
  int joined = 0, finalised = 0;
};

enum class Life : uint8_t { alive, finalising, finalised, revoked, ended };

struct State {
  std::mutex mutex;
  Options options;
  std::mt19937_64 random;
  std::vector<std::string> violations;
  std::map<uint64_t, std::shared_ptr<World>> worlds;
  std::set<ncclComm_t> known;  // every handle that was ever given out; never freed
  uint64_t next_world = 1, operations = 0;
};
State& state();
using Lock = std::unique_lock<std::mutex>;

/// Notes a violation. Precondition: the caller holds the mutex.
ncclResult_t violate(ncclResult_t code, const std::string& text);
/// The same, from a caller that does not hold it.
ncclResult_t refuse(ncclResult_t code, const std::string& text);

std::string describe(const Operation& operation);
std::string rank_text(const ncclComm& comm);
size_t bytes_of(ncclDataType_t type);
bool is_message(Kind kind);

/// Returns false outside of a group. Within one, ncclGroupEnd() waits for the communicator.
bool note_in_group(ncclComm_t comm);
/// Gives a launch to its stream. Precondition: the caller does not hold the mutex.
ncclResult_t enqueue(const std::shared_ptr<Launch>& launch);
/// Returns whether every rank that takes part in the launch has made its call.
bool have_all_come(const Launch& launch);
/// Does what a call of a non-blocking communicator has left to do, as far as it can be done now.
void make_progress(ncclComm_t comm);
/// The kernel of a launch: returns true when it has ended.
bool run_kernel(const std::shared_ptr<Launch>& launch);
/// Moves the data of operations that belong together. `group` has those of all ranks of a collective, by
/// rank, or a send and its receive.
void move_data(const std::vector<std::shared_ptr<Operation>>& group);

}  // namespace mx::fake_nccl

struct ncclComm {
  int rank = 0, size = 0, device = 0;
  bool blocking = false;
  std::shared_ptr<mx::fake_nccl::World> world;
  mx::fake_nccl::Life life = mx::fake_nccl::Life::alive;
  bool stopped = false;  // aborted, revoked or failed: kernels end at once
  ncclResult_t result = ncclSuccess;
  std::string error;
  // What the last call has left to do.
  bool making = false;
  std::vector<std::shared_ptr<mx::fake_nccl::Launch>> pending;
  int polls = 0;
  bool is_busy() const { return result == ncclInProgress; }

  std::deque<std::shared_ptr<mx::fake_nccl::Launch>> launches;  // whose kernels have not ended
  uint64_t next_launch = 0, next_to_run = 0, collectives = 0;
  std::map<int, uint64_t> sent, received;  // messages, by peer
  /// Operations that other ranks may still have to meet, by number; messages by peer and number.
  std::map<uint64_t, std::shared_ptr<mx::fake_nccl::Operation>> open_collectives;
  std::map<std::pair<int, uint64_t>, std::shared_ptr<mx::fake_nccl::Operation>> open_sends, open_receives;
  std::set<int> connected;  // ranks with which an operation has been started
};
