// Loading continues while the program computes, but not further ahead than `prefetch` allows.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "nn/data/loader.h"
#include "operators/elementwise_binary.h"
#include "tests/support/engine_cases.h"
#include "tests/support/held.h"

namespace mx::data {
namespace {

using test::Hold;

/// Records which samples have been read.
struct Reads {
  std::vector<std::atomic<int>> counts;
  explicit Reads(int64_t n) : counts(static_cast<size_t>(n)) {}
};

FunctionDataset counted(const std::shared_ptr<Reads>& reads) {
  return FunctionDataset(static_cast<int64_t>(reads->counts.size()), {{{4}}, {{}, i64}},
                         [reads](int64_t i, std::span<const Tensor> sample) {
                           ++reads->counts[static_cast<size_t>(i)];
                           for (int64_t k = 0; k < 4; ++k) sample[0].as<float>()[k] = static_cast<float>(i);
                           *sample[1].as<int64_t>() = i;
                         });
}

/// Operations that read arrays and end when they are released.
class Holds {
 public:
  void on(const NDArray& array) {
    Engine& engine = current_engine();
    const Var result = engine.new_var();
    engine.push_async(all_.emplace_back().operation(), {.reads = {array.var()}, .writes = {result}});
    engine.delete_var(result);
  }
  void release() {
    for (Hold& hold : all_) hold.release();
  }

 private:
  std::deque<Hold> all_;
};

class LoaderOverlap : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  Engine engine_{GetParam().options};
  EngineScope scope_{engine_};
};
// Not in mode naive, where a push returns only when its operation has ended.
INSTANTIATE_TEST_SUITE_P(Modes, LoaderOverlap, ::testing::ValuesIn(test::worker_cases()), test::CaseName());

TEST_P(LoaderOverlap, TheNextBatchesAreLoadedWhileOneIsComputedWith) {
  for (int64_t prefetch : {1, 3}) {
    const auto reads = std::make_shared<Reads>(10);
    Loader loader(counted(reads), {.batch_size = 1, .prefetch = prefetch});
    Holds holds;
    auto it = loader.begin();
    holds.on(it->images());
    for (int64_t k = 1; k <= prefetch; ++k) {
      ++it;  // these batches are available although the first one is still in use
      EXPECT_EQ(static_cast<float>(k), it->images().to_vector<float>()[0]);
    }
    ++it;  // this batch is loaded only after the computation on the first one has ended
    const NDArray later = it->images() + 1;
    EXPECT_EQ(0, reads->counts[static_cast<size_t>(prefetch) + 1].load());
    holds.release();
    EXPECT_EQ(static_cast<float>(prefetch + 2), later.to_vector<float>()[0]);
    EXPECT_EQ(1, reads->counts[static_cast<size_t>(prefetch) + 1].load());
  }
}

// The same if the program never reads a value: the whole epoch is pushed, but only the allowed number of
// batches is loaded.
TEST_P(LoaderOverlap, LoadingDoesNotRunAheadOfTheProgram) {
  for (int64_t prefetch : {0, 2}) {
    const auto reads = std::make_shared<Reads>(40);
    Loader loader(counted(reads), {.batch_size = 2, .prefetch = prefetch});
    Holds holds;
    NDArray sum = zeros({2, 4});
    for (auto& [images, labels] : loader) {
      holds.on(labels);
      sum = sum + images;
    }
    for (size_t i = static_cast<size_t>(2 * (prefetch + 1)); i < 40; ++i)
      EXPECT_EQ(0, reads->counts[i].load()) << "sample " << i << ", prefetch " << prefetch;
    holds.release();
    EXPECT_EQ((std::vector<float>{380, 380, 380, 380, 400, 400, 400, 400}), sum.to_vector<float>());
  }
}

TEST_P(LoaderOverlap, AHeldBatchDoesNotHoldTheEndOfTheLoop) {
  const auto reads = std::make_shared<Reads>(6);
  Holds holds;
  NDArray kept;
  {
    Loader loader(counted(reads), {.batch_size = 2, .prefetch = 1});
    for (auto& [images, labels] : loader) {
      holds.on(images);
      kept = images * 2 + labels.to(f32).expand_dims(1);
    }
    for (auto& batch : loader) {
      holds.on(batch.images());
      break;
    }
  }
  holds.release();
  EXPECT_EQ(12.f, kept.to_vector<float>()[0]);  // 2 * 4 + 4
  engine_.wait_all();
}

TEST_P(LoaderOverlap, ReadsEverySampleOnce) {
  const auto reads = std::make_shared<Reads>(100);
  Loader loader(counted(reads), {.batch_size = 7, .shuffle = true, .prefetch = 2});
  NDArray sum = zeros({});
  for (auto& [images, labels] : loader) sum = sum + images.select(0, 0).select(0, 0);
  sum.wait();
  engine_.wait_all();
  for (const auto& count : reads->counts) EXPECT_EQ(1, count.load());
}

}  // namespace
}  // namespace mx::data
