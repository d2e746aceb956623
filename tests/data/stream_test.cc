// Streams: samples in their order, shuffling, shards, errors, the number of samples read ahead, and
// positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "nn/data/stream.h"
#include "tests/data/numbered.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;

class StreamModes : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  Engine engine_{GetParam().options};
  EngineScope scope_{engine_};
};
INSTANTIATE_TEST_SUITE_P(Modes, StreamModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

/// 0 .. n - 1; those in `bad` are damaged.
IterableHandle counting(int64_t n, std::vector<int64_t> bad = {},
                        std::shared_ptr<std::atomic<int64_t>> read = nullptr) {
  return iterable(
      [=](int64_t) {
        return [=, next = int64_t{0}](Sample& sample) mutable {
          if (next == n) return false;
          const int64_t number = next++;
          if (read != nullptr) ++*read;
          if (std::find(bad.begin(), bad.end(), number) != bad.end())
            throw FormatError("[count] 'numbers': expected a good number at offset " +
                              std::to_string(number) + ", got none");
          sample = {host_scalar(number)};
          return true;
        };
      },
      {"number"});
}

std::vector<std::vector<int64_t>> stream_epoch(StreamLoader& loader) {
  std::vector<std::vector<int64_t>> batches;
  for (Batch& batch : loader) {
    batches.push_back(batch["number"].to_vector<int64_t>());
    EXPECT_EQ(batches.back(), batch.indices().to_vector<int64_t>());
    EXPECT_EQ(static_cast<int64_t>(batches.size()) - 1, batch.number());
  }
  return batches;
}

TEST_P(StreamModes, SamplesComeInTheirOrderOrMixed) {
  for (int64_t prefetch : {0, 1, 5}) {
    StreamLoader loader(counting(8), {.batch_size = 3, .prefetch = prefetch});
    for (int epoch = 0; epoch < 2; ++epoch)
      EXPECT_EQ((std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}, {6, 7}}), stream_epoch(loader));
    StreamLoader whole(counting(8), {.batch_size = 3, .drop_last = true, .prefetch = prefetch});
    EXPECT_EQ((std::vector<std::vector<int64_t>>{{0, 1, 2}, {3, 4, 5}}), stream_epoch(whole));
    StreamLoader none(counting(0), {.prefetch = prefetch});
    EXPECT_TRUE(stream_epoch(none).empty());
  }
}

TEST_P(StreamModes, ShufflingIsAFunctionOfSeedAndEpoch) {
  std::vector<std::vector<std::vector<int64_t>>> runs;
  for (int64_t prefetch : {0, 3}) {
    StreamLoader loader(counting(40),
                        {.batch_size = 7, .prefetch = prefetch, .shuffle_buffer = 10, .seed = 5});
    for (int epoch = 0; epoch < 2; ++epoch) {
      runs.push_back(stream_epoch(loader));
      EXPECT_EQ(test::up_to(40), test::sorted(test::joined(runs.back())));
      const std::vector<int64_t> order = test::joined(runs.back());
      for (int64_t place = 0; place < 40; ++place) EXPECT_LE(order[static_cast<size_t>(place)], place + 9);
    }
  }
  EXPECT_EQ(runs[0], runs[2]);
  EXPECT_EQ(runs[1], runs[3]);
  EXPECT_NE(runs[0], runs[1]);
}

TEST_P(StreamModes, ShardsDivideTheSamples) {
  StreamLoader first(counting(7), {.batch_size = 10, .shard = 0, .shards = 2});
  StreamLoader second(counting(7), {.batch_size = 10, .shard = 1, .shards = 2});
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{0, 2, 4, 6}}), stream_epoch(first));
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{1, 3, 5}}), stream_epoch(second));
}

TEST_P(StreamModes, DamagedSamplesAreLeftOutOrThrownAtTheirBatch) {
  int skipped = 0;
  StreamLoader loader(
      counting(9, {1, 4}),
      {.batch_size = 3, .bad = BadSamples::skip, .on_skip = [&](const std::string&) { ++skipped; }});
  EXPECT_EQ((std::vector<std::vector<int64_t>>{{0, 2, 3}, {5, 6, 7}, {8}}), stream_epoch(loader));
  EXPECT_EQ(2, skipped);
  StreamLoader strict(counting(9, {4}), {.batch_size = 3});
  auto batch = strict.begin();
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2}), (*batch)[0].to_vector<int64_t>());
  EXPECT_TRUE(contains(error_of<FormatError>([&] { ++batch; }),
                       "[count] 'numbers': expected a good number at offset 4"));
  ++batch;
  EXPECT_EQ((std::vector<int64_t>{5, 6, 7}), (*batch)[0].to_vector<int64_t>());
}

TEST_P(StreamModes, TransformsHaveTheRandomNumbersOfTheSample) {
  const auto numbers = [](int64_t size) {
    StreamLoader loader(
        counting(10), {.batch_size = size, .seed = 2, .transform = [](Sample& sample, SampleRandom& random) {
                         sample.push_back(host_scalar(random.uniform()));
                       }});
    std::vector<double> all;
    for (Batch& batch : loader)
      for (double x : batch[1].to_vector<double>()) all.push_back(x);
    return all;
  };
  EXPECT_EQ(numbers(1), numbers(4));
}

TEST_P(StreamModes, APositionContinuesThere) {
  const StreamOptions options{.batch_size = 4, .shuffle_buffer = 6, .seed = 9};
  StreamLoader loader(counting(30), options);
  stream_epoch(loader);
  std::vector<std::vector<int64_t>> rest;
  StreamState state;
  for (Batch& batch : loader) {
    if (batch.number() >= 3) rest.push_back(batch[0].to_vector<int64_t>());
    if (batch.number() == 2) state = loader.state();
  }
  EXPECT_EQ((StreamState{1, 3}), state);
  StreamLoader again(counting(30), options);
  again.restore(state);
  EXPECT_EQ(state, again.state());
  std::vector<std::vector<int64_t>> continued;
  for (Batch& batch : again) continued.push_back(batch[0].to_vector<int64_t>());
  EXPECT_EQ(rest, continued);
  EXPECT_EQ((StreamState{2, 0}), again.state());
  error_of<InvalidArgument>([&] { again.restore({-1, 0}); });
}

TEST_P(StreamModes, APositionBehindADamagedRecordContinuesThere) {
  for (const int64_t buffer : {0, 5}) {
    const StreamOptions options{.batch_size = 3, .shuffle_buffer = buffer, .seed = 4};
    // The rest of the epoch, with an empty list for each error. `states` gets the position after each of
    // them.
    const auto rest_of = [](StreamLoader& loader, std::vector<StreamState>* states) {
      std::vector<std::vector<int64_t>> rest;
      const auto step = [&](const auto& move) {
        for (int errors = 0; errors < 10; ++errors) try {
            move();
            return;
          } catch (const FormatError&) {
            rest.emplace_back();
            if (states != nullptr) states->push_back(loader.state());
          }
      };
      StreamLoader::Iterator batch;
      step([&] {
        loader.restore(loader.state());
        batch = loader.begin();
      });
      while (batch != loader.end()) {
        rest.push_back((*batch)[0].to_vector<int64_t>());
        if (states != nullptr) states->push_back(loader.state());
        step([&] { ++batch; });
      }
      return rest;
    };
    std::vector<StreamState> states;
    StreamLoader whole(counting(20, {0, 5, 12, 19}), options);
    const std::vector<std::vector<int64_t>> all = rest_of(whole, &states);
    ASSERT_EQ(all.size(), states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      StreamLoader again(counting(20, {0, 5, 12, 19}), options);
      again.restore(states[i]);
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      EXPECT_EQ(std::vector<std::vector<int64_t>>(begin, all.end()), rest_of(again, nullptr));
    }
  }
}

TEST(StreamTest, AStreamWithoutEndIsReadAheadByThePrefetchedBatchesOnly) {
  const auto read = std::make_shared<std::atomic<int64_t>>(0);
  StreamLoader loader(counting(-1, {}, read), {.batch_size = 2, .prefetch = 3});
  int64_t batches = 0;
  for (Batch& batch : loader) {
    batch[0].wait();
    ++batches;
    EXPECT_LE(read->load(), 2 * (batches + 4));
    if (batches == 20) break;
  }
  EXPECT_EQ(20, batches);
}

TEST(StreamTest, AnErrorOfTheStreamEndsTheEpoch) {
  StreamLoader loader(iterable([](int64_t) {
                        return [n = 0](Sample& sample) mutable {
                          if (n == 3) throw std::runtime_error("connection lost");
                          sample = {host_scalar(n++)};
                          return true;
                        };
                      }),
                      {.batch_size = 2});
  auto batch = loader.begin();
  try {
    ++batch;
    ADD_FAILURE() << "expected an error";
  } catch (const std::exception& e) {
    EXPECT_TRUE(contains(e.what(), "connection lost"));
  }
  ++batch;
  EXPECT_TRUE(batch == loader.end());
}

TEST(StreamTest, LinesOfATextFile) {
  const test::TempFolder folder;
  test::spill(folder / "a.txt", "one\r\n\nthree");
  StreamLoader loader(text_lines(folder / "a.txt"), {.batch_size = 3, .collate = pad({.value = '.'})});
  const Batch batch = *loader.begin();
  const std::vector<uint8_t> text = batch["text"].to_vector<uint8_t>();
  EXPECT_EQ("one.......three", std::string(text.begin(), text.end()));
  EXPECT_EQ((std::vector<int64_t>{0, 5, 6}), batch["offset"].to_vector<int64_t>());
  StreamLoader none(text_lines(folder / "none.txt"), {});
  EXPECT_TRUE(contains(error_of<FileError>([&] { none.begin(); }), "none.txt"));
}

TEST(StreamTest, SamplesWithoutFieldsAreRefused) {
  StreamLoader loader(iterable([](int64_t) {
                        return [n = 0](Sample& sample) mutable {
                          sample.clear();
                          return n++ < 10;
                        };
                      }),
                      {.batch_size = 3});
  const std::string text = error_of<InvalidArgument>([&] { loader.begin(); });
  EXPECT_TRUE(contains(text, "at least one field")) << text;
  EXPECT_TRUE(contains(text, "stream_test.cc:" + std::to_string(__LINE__ - 2) + ')')) << text;
}

// A later batch fails: the error names the loop.
TEST(StreamTest, ErrorsOfALoopNameItsLine) {
  StreamLoader loader(iterable([](int64_t) {
                        return [n = 0](Sample& sample) mutable {
                          sample = {HostArray(Shape{n < 6 ? 2 : 3}, f32)};
                          return n++ < 10;
                        };
                      }),
                      {.batch_size = 4});
  const std::string text = error_of<InvalidArgument>([&] {
    for (Batch& batch : loader) EXPECT_EQ((Shape{4, 2}), batch[0].shape());
  });
  EXPECT_TRUE(contains(text, "stream_test.cc:" + std::to_string(__LINE__ - 2) + ')')) << text;
}

TEST(StreamTest, InvalidOptionsAreRefused) {
  error_of<InvalidArgument>([] { StreamLoader(nullptr, {}); });
  error_of<InvalidArgument>([] { StreamLoader(counting(1), {.batch_size = 0}); });
  error_of<InvalidArgument>([] { StreamLoader(counting(1), {.prefetch = -1}); });
  error_of<InvalidArgument>([] { StreamLoader(counting(1), {.shard = 2, .shards = 2}); });
  error_of<InvalidArgument>([] { StreamLoader(counting(1), {.collate = nullptr}); });
  error_of<InvalidArgument>([] { iterable(nullptr); });
}

}  // namespace
}  // namespace mx::data
