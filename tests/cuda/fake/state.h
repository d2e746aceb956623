// The state of the stand-in. Private to tests/cuda/fake/. One mutex guards all of it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/fake/fake_cuda.h"

namespace mx::fake_cuda {

/// Becomes true when work has ended. Events and waits share it, so recording an event again changes no wait.
struct Done {
  bool done = false;
};
using DonePtr = std::shared_ptr<Done>;

/// One kernel, copy or the like, alone or in a graph.
struct Task {
  Step step;
  std::vector<size_t> after;  // tasks of the same item
  int delay = 0;
  bool started = false, ended = false;
};

/// One entry of a stream: a task, or all tasks of a graph.
struct Item {
  std::vector<Task> tasks;
  std::vector<DonePtr> after;  // of other streams
  DonePtr done = std::make_shared<Done>();
};

struct Capture {
  cudaStreamCaptureMode mode{};
  std::thread::id thread;  // that began it
  cudaStream_t origin = nullptr;
  std::unique_ptr<CUgraph_st> graph;
  std::set<cudaStream_t> streams;
  bool active = true, valid = true;
};

enum class NodeKind : uint8_t { kernel, copy, set, host, empty, child, allocation, release, wait };

/// Memory that an allocation has returned.
struct Block {
  size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;
  cudaMemPool_t pool = nullptr;
  bool registered = false;  // memory of the program, locked by cudaHostRegister()
};

struct DeviceState {
  bool has_context = false;
  cudaError_t lost = cudaSuccess;
  size_t used = 0;
  int failing = 0;  // the allocation that is to fail, counted from the next
  std::vector<cudaStream_t> streams;
  cudaStream_t legacy = nullptr;
  std::set<int> peers;
};

struct State {
  std::mutex mutex;
  std::condition_variable changed;   // work has ended, or the world goes on
  std::condition_variable appended;  // the scheduler has something to look at
  Options options;
  std::mt19937_64 random;
  std::vector<DeviceState> devices;
  std::map<const char*, Block> blocks;
  std::set<const void*> loaded;  // functions
  std::set<std::shared_ptr<Capture>> captures;
  bool stopped = false;  // a thread waits in cudaFree(): all others wait for it
  std::thread::id stopper;
  std::string fault_text;
  std::vector<int> graph_priorities;           // see graph_priorities()
  std::vector<std::shared_ptr<void>> handles;  // never freed: a destroyed handle is recognised
};

State& state();

using Lock = std::unique_lock<std::mutex>;

struct ThreadState {
  int device = 0;
  // Devices whose contexts were pushed; the last one is the current device. Not a vector: the thread that
  // ends the process calls CUDA after its thread_local objects have been destroyed.
  int pushed[64] = {};
  size_t depth = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::map<int, cudaStream_t> streams;  // cudaStreamPerThread, by device
  ~ThreadState();
};
ThreadState& this_thread();
int current_device();

/// The body of every call: takes the lock, waits while another thread has stopped the world, and notes the
/// error as the thread's last one.
template <class F>
cudaError_t call(const F& body) {
  State& s = state();
  Lock lock(s.mutex);
  s.changed.wait(lock, [&] { return !s.stopped || s.stopper == std::this_thread::get_id(); });
  const cudaError_t code = body(lock);
  if (code != cudaSuccess && code != cudaErrorNotReady) this_thread().last_error = code;
  return code;
}

/// The current device, whose context it creates if there is none. `code` becomes the error that has lost it.
DeviceState& current(cudaError_t& code);
/// Creates the context of the current device. Most calls of the runtime do, also if they are about another
/// device.
void touch_current();

/// A stream by its handle. Null, and the error, for one that has been destroyed or whose device is lost.
cudaStream_t find(cudaStream_t stream, cudaError_t& code);

/// Appends work to a stream, or a node to the graph that the stream captures.
struct Work {
  NodeKind kind;
  Step step;
  int priority = 0;
};
cudaError_t append(CUstream_st& stream, Work work);
void append_item(CUstream_st& stream, std::shared_ptr<Item> item);
std::shared_ptr<Item> item_of(Step step);
/// Does nothing.
bool nothing();

bool is_idle(const DeviceState& device);
/// Wait for the work that is there, or until the device is lost.
cudaError_t wait_idle(Lock& lock, int device);
cudaError_t wait_done(Lock& lock, int device, const DonePtr& done);
cudaError_t wait_stream(Lock& lock, CUstream_st& stream);
/// Waits until the device is idle while every other thread waits in its next call.
cudaError_t stop_world(Lock& lock, int device);
void lose_device(int device, cudaError_t code);

/// The error of a call that a capture does not allow at this time; the captures that forbid it become
/// invalid.
cudaError_t check_unsafe();
void invalidate(Capture& capture);
/// Adds a node to the graph that a stream captures.
CUgraphNode_st* capture_node(CUstream_st& stream, Work work);

/// The block that contains an address, and where it begins; null if there is none.
const Block* block_of(const void* address, const char** begin = nullptr);
/// A function of the driver about libraries of kernels (libraries.cc).
void* library_function(const char* name);
cudaError_t allocate(int device, size_t bytes, cudaMemoryType type, cudaMemPool_t pool, void** memory);
void release(void* memory);

}  // namespace mx::fake_cuda

struct CUgraphNode_st {
  mx::fake_cuda::NodeKind kind{};
  mx::fake_cuda::Step step;
  int priority = 0;
  std::vector<CUgraphNode_st*> after;
  std::unique_ptr<CUgraph_st> child;
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // each after those that it depends on
  std::vector<void*> memory;                           // of its allocations
};

struct CUgraphExec_st {
  std::unique_ptr<CUgraph_st> graph;
  bool node_priorities = false;
  mx::fake_cuda::DonePtr last;  // the latest launch
};

struct CUstream_st {
  int device = 0;
  bool alive = true, legacy = false, blocking = false;
  int priority = 0;
  std::deque<std::shared_ptr<mx::fake_cuda::Item>> queue;
  mx::fake_cuda::DonePtr last;  // the item that was appended last
  std::shared_ptr<mx::fake_cuda::Capture> capture;
  std::vector<CUgraphNode_st*> tips;  // nodes of the capture after which the next one comes
};

struct CUevent_st {
  int device = 0;
  bool alive = true;
  mx::fake_cuda::DonePtr latest;
  std::shared_ptr<mx::fake_cuda::Capture> capture;  // in which it was recorded last
  std::vector<CUgraphNode_st*> tips;
};

struct CUmemPoolHandle_st {
  int device = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  bool alive = true;
  std::set<int> access;  // other devices that may access it
};
