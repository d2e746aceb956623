// Arrays of GPUs in sums over processes: stores copy them to the host for communicators such as "tcp" and
// "mpi", and the memory for that is page-locked, so that the copies need no further ones and no wait.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "comm/threads/thread_group.h"
#include "operators/operators.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/kvstore/noting_communicator.h"
#include "tests/kvstore/rank_threads.h"

namespace mx {
namespace {

using comm::Collective;
using test::NotedCall;
using test::NotingCommunicator;

constexpr int kStagingRanks = 2;

void expect_page_locked(const void* memory, const NotedCall& call, const char* which) {
  if (memory == nullptr || call.bytes == 0) return;
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost)
      << which << " of " << call.what << " with " << call.bytes << " bytes is not page-locked";
}

/// Calls body(store, device) on two ranks, each with a GPU. All buffers of the calls of the given kind must
/// be page-locked, and there must be so many calls.
void on_gpus(Collective collective, size_t calls, const std::function<void(KVStore& kv, Context gpu)>& body,
             const KVStoreOptions& options = {}) {
  std::vector<std::shared_ptr<NotingCommunicator>> notes;
  std::vector<std::shared_ptr<comm::Communicator>> members;
  for (const auto& member : comm::make_thread_group(kStagingRanks)) {
    notes.push_back(std::make_shared<NotingCommunicator>(member));
    members.push_back(notes.back());
  }
  const auto errors = test::on_group(
      members, [&](KVStore& kv) { body(kv, gpu(kv.rank())); }, options);
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  for (const auto& note : notes) {
    const std::vector<NotedCall> found = note->take(collective);
    EXPECT_GE(found.size(), calls);
    for (const NotedCall& call : found) {
      expect_page_locked(call.in, call, "the input");
      expect_page_locked(call.out, call, "the output");
    }
  }
}

/// Returns numbers of a rank, on its GPU.
NDArray numbers_on(Context device, int64_t count, int rank) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank);
  return from_data(values.data(), {count}).to(device);
}

std::vector<float> sum_of_numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(2 * (i % 1000) + 1);
  return values;
}

// The first test of the suite: it needs memory of the host that is older than the first GPU.
TEST(FakeGpuStaging, MemoryFromBeforeTheFirstGpuIsNotUsed) {
  constexpr int64_t kCount = 1 << 22;
  zeros({kCount}, f32).wait();
  on_gpus(Collective::allreduce, 1, [&](KVStore& kv, Context gpu) {
    NDArray sum = zeros({kCount}, f32, gpu);
    kv.allreduce({KVKey("w")}, {KVStore::Values(numbers_on(gpu, kCount, kv.rank()))}, {sum}, {});
    EXPECT_EQ(sum.to_vector<float>(), sum_of_numbers(kCount));
  });
}

TEST(FakeGpuStaging, MessagesOfOneKeyAndOfSeveralArePageLocked) {
  KVStoreOptions options;
  options.fuse_bytes = 4000;
  options.cut_bytes = 100'000;  // the large key goes in several calls
  on_gpus(
      Collective::allreduce, 4,
      [](KVStore& kv, Context gpu) {
        std::vector<KVKey> keys;
        std::vector<KVStore::Values> values;
        std::vector<NDArray> sums;
        const std::vector<int64_t> counts{10, 300, 70'001, 0, 50};
        for (const int64_t count : counts) {
          keys.emplace_back("key " + std::to_string(keys.size()));
          values.emplace_back(numbers_on(gpu, count, kv.rank()));
          sums.push_back(empty({count}, f32, gpu));
        }
        kv.allreduce(keys, values, sums, {});
        for (size_t i = 0; i < sums.size(); ++i)
          EXPECT_EQ(sums[i].to_vector<float>(), sum_of_numbers(counts[i])) << i;
      },
      options);
}

TEST(FakeGpuStaging, SlicesArePageLocked) {
  on_gpus(Collective::reduce_scatter, 1, [](KVStore& kv, Context gpu) {
    const int64_t count = 50'001;
    const NDArray flat = numbers_on(gpu, count, kv.rank());
    kv.sum_slices(KVKey("flat"), flat);
    const Slice own = kv.slice_of(count);
    const std::vector<float> got = flat.to_vector<float>(), sum = sum_of_numbers(count);
    for (int64_t i = *own.start; i < *own.stop; ++i)
      ASSERT_EQ(got[static_cast<size_t>(i)], sum[static_cast<size_t>(i)]) << i;
  });
}

TEST(FakeGpuStaging, BroadcastsArePageLocked) {
  on_gpus(Collective::broadcast, 1, [](KVStore& kv, Context gpu) {
    const NDArray value = numbers_on(gpu, 30'000, kv.rank());
    kv.broadcast_from_first({KVKey("w")}, {value});
    EXPECT_EQ(value.to_vector<float>(), numbers_on(cpu(), 30'000, 0).to_vector<float>());
  });
}

}  // namespace
}  // namespace mx
