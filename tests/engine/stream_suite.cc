#include "tests/engine/stream_suite.h"

#include <atomic>
#include <cmath>
#include <latch>
#include <random>

#include "engine/device/registry.h"

namespace mx::test {

StreamArray::~StreamArray() {
  try {
    engine.wait_all();
  } catch (...) {  // the test has already checked the errors that it expects
  }
}

void StreamSuite::SetUp() {
  for (const Context context : GetParam().devices) {
    if (context.id >= num_devices(context.kind)) GTEST_SKIP() << to_string(context) << " is not there";
  }
  if (GetParam().set_up != nullptr) GetParam().set_up();
}

void StreamSuite::TearDown() {
  engine_.reset();
  if (GetParam().tear_down != nullptr && !IsSkipped()) GetParam().tear_down();
}

Engine& StreamSuite::start(int compute_streams) {
  EngineOptions options;
  options.threads = 2;
  options.compute_streams = compute_streams;
  engine_ = std::make_unique<Engine>(options);
  return *engine_;
}

std::unique_ptr<StreamArray> StreamSuite::array(size_t size, size_t device_index) {
  return std::make_unique<StreamArray>(*engine_, device(device_index), size);
}

void StreamSuite::push_fill(const StreamArray& out, double value) {
  engine_->push([this, to = out.memory.data(), n = out.memory.size(),
                 value](RunContext run) { ops().fill(*run.stream(), to, n, value); },
                {.writes = {out.var}, .context = out.memory.context(), .name = "fill"});
}

void StreamSuite::push_add(const StreamArray& a, const StreamArray& b, const StreamArray& out) {
  struct Args {
    const double *a, *b;
    double* out;
    size_t n;
  } const args{a.memory.data(), b.memory.data(), out.memory.data(), out.memory.size()};
  std::vector<Var> reads, updates;
  (&a == &out ? updates : reads).push_back(a.var);
  if (&b != &a) (&b == &out ? updates : reads).push_back(b.var);
  PushOptions options{.reads = reads, .updates = updates, .context = out.memory.context(), .name = "add"};
  if (updates.empty()) options.writes = {out.var};
  engine_->push([this, args](RunContext run) { ops().add(*run.stream(), args.a, args.b, args.out, args.n); },
                options);
}

void StreamSuite::push_copy_in(const std::vector<double>& host, Var host_var, const StreamArray& out) {
  engine_->push(
      [&host, &out](RunContext run) {
        StreamOps::copy(*run.stream(), out.memory.data(), out.memory.context(), host.data(), cpu(),
                        host.size());
      },
      {.reads = {host_var},
       .writes = {out.var},
       .context = out.memory.context(),
       .name = "copy_in",
       .lane = StreamKind::copy_in});
}

void StreamSuite::push_copy_out(const StreamArray& from, std::vector<double>& host, Var host_var) {
  engine_->push(
      [&host, &from](RunContext run) {
        StreamOps::copy(*run.stream(), host.data(), cpu(), from.memory.data(), from.memory.context(),
                        host.size());
      },
      {.reads = {from.var},
       .writes = {host_var},
       .context = from.memory.context(),
       .name = "copy_out",
       .lane = StreamKind::copy_out});
}

std::vector<double> StreamSuite::values(const StreamArray& from) {
  std::vector<double> host(from.memory.size());
  const Var host_var = engine_->new_var();
  push_copy_out(from, host, host_var);
  engine_->wait(host_var);
  engine_->delete_var(host_var);
  return host;
}

namespace {

// --- Overlap.

TEST_P(StreamSuite, IndependentOperationsOverlapOnTheStreamsOfEveryDevice) {
  Engine& engine = start(4);
  const int streams = 4 * static_cast<int>(GetParam().devices.size());
  auto meeting = ops().new_meeting(streams);
  for (int i = 0; i < streams; ++i) {
    engine.push([&](RunContext run) { meeting->attend(*run.stream()); },
                {.writes = {engine.new_var()}, .context = device(static_cast<size_t>(i))});
  }
  engine.wait_all();
  EXPECT_TRUE(meeting->all_met());
  EXPECT_EQ(meeting->arrived(), streams);
}

TEST_P(StreamSuite, CopiesOverlapEachOtherAndComputeInBothDirections) {
  Engine& engine = start();
  auto meeting = ops().new_meeting(4);
  for (const StreamKind lane :
       {StreamKind::copy_in, StreamKind::compute, StreamKind::copy_out, StreamKind::comm}) {
    engine.push([&](RunContext run) { meeting->attend(*run.stream()); },
                {.writes = {engine.new_var()}, .context = device(), .lane = lane});
  }
  engine.wait_all();
  EXPECT_TRUE(meeting->all_met());
}

TEST_P(StreamSuite, AnOperationForCommunicationDoesNotWaitForTheInputOfAnEarlierOne) {
  Engine& engine = start(4);
  auto gate = ops().new_meeting(2);
  auto late = array(16), early = array(16);
  std::latch enqueued(1);
  engine.push([&](RunContext run) { gate->attend(*run.stream()); },
              {.writes = {late->var}, .context = device()});
  engine.push(
      [&](RunContext run) {
        ops().fill(*run.stream(), late->memory.data(), 16, 3);
        enqueued.count_down();
      },
      {.updates = {late->var}, .context = device(), .lane = StreamKind::comm});
  enqueued.wait();
  engine.push([&](RunContext run) { ops().fill(*run.stream(), early->memory.data(), 16, 5); },
              {.writes = {early->var}, .context = device(), .lane = StreamKind::comm});
  EXPECT_TRUE(engine.wait(early->var, 20'000));
  EXPECT_FALSE(engine.wait(late->var, 0));
  gate->host_attends();
  EXPECT_EQ(values(*early)[5], 5);
  EXPECT_EQ(values(*late)[5], 3);
  EXPECT_TRUE(gate->all_met());
}

TEST_P(StreamSuite, NoHostThreadIsHeldByAnOperationInFlight) {
  // While the first operation is blocked, everything after it is enqueued by two workers, with far more
  // operations than threads. The driver of a GPU accepts some hundreds of launches per stream without
  // blocking.
  const int count = host_code() ? 4000 : 200;
  Engine& engine = start(2);
  auto gate = ops().new_meeting(2);
  auto a = array(16), b = array(16);
  std::latch enqueued(count);
  engine.push([&](RunContext run) { gate->attend(*run.stream()); },
              {.writes = {a->var}, .context = device()});
  push_fill(*b, 1);
  for (int i = 0; i < count; ++i) {
    StreamArray& out = i % 2 ? *a : *b;
    engine.push(
        [this, &enqueued, &out](RunContext run) {
          ops().fill(*run.stream(), out.memory.data(), 16, 3);
          enqueued.count_down();
        },
        {.reads = {(i % 2 ? b : a)->var}, .updates = {out.var}, .context = device()});
  }
  enqueued.wait();
  EXPECT_LT(gate->arrived(), 2);
  EXPECT_FALSE(engine.wait(a->var, 0));
  gate->host_attends();
  EXPECT_EQ(values(*a)[5], 3);
  EXPECT_TRUE(gate->all_met());
  EXPECT_EQ(engine.stats().stream_ops, static_cast<uint64_t>(count) + 3);
}

// --- Device and host.

TEST_P(StreamSuite, AHostOperationStartsAfterTheDeviceHasEnded) {
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto a = array(4);
  std::atomic<bool> opened{false}, early{false};
  std::latch enqueued(1);
  engine.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        ops().fill(*run.stream(), a->memory.data(), 4, 7);
        enqueued.count_down();
      },
      {.writes = {a->var}, .context = device()});
  const Var done = engine.new_var();
  engine.push([&] { early = !opened; }, {.reads = {a->var}, .writes = {done}, .name = "host"});
  enqueued.wait();
  // Other work runs meanwhile, so the engine has a chance to start the operation too early.
  const Var other = engine.new_var();
  for (int i = 0; i < 100; ++i) {
    engine.push([] {}, {.updates = {other}});
    engine.wait(other);
  }
  EXPECT_FALSE(engine.wait(done, 0));
  opened = true;
  gate->host_attends();
  engine.wait(done);
  EXPECT_FALSE(early);
}

TEST_P(StreamSuite, HostOperationsTakePartBetweenDeviceOperations) {
  Engine& engine = start();
  auto a = array(64), b = array(64);
  std::vector<double> host(64), result(64);
  const Var host_var = engine.new_var();
  push_fill(*a, 1);
  for (int round = 0; round < 20; ++round) {
    push_copy_out(*a, host, host_var);
    engine.push(
        [&] {
          for (double& x : host) x *= 2;
        },
        {.updates = {host_var}, .name = "double"});
    push_copy_in(host, host_var, *b);
    push_add(*b, *b, *a);
  }
  EXPECT_EQ(values(*a), std::vector<double>(64, std::pow(4.0, 20)));
}

TEST_P(StreamSuite, WaitingForAValueDoesNotWaitForItsReaders) {
  Engine& engine = start(2);
  auto gate = ops().new_meeting(2);
  auto a = array(4);
  push_fill(*a, 1);
  engine.push([&](RunContext run) { gate->attend(*run.stream()); },
              {.reads = {a->var}, .writes = {engine.new_var()}, .context = device()});
  engine.wait(a->var);
  EXPECT_LT(gate->arrived(), 2);
  gate->host_attends();
  engine.wait_all();
  EXPECT_TRUE(gate->all_met());
}

// --- Memory.

TEST_P(StreamSuite, MemoryOfOneOperationIsNotReusedWhileItRuns) {
  Engine& engine = start(4);
  constexpr size_t kSize = 512;
  std::vector<std::unique_ptr<StreamArray>> sums;
  for (size_t i = 0; i < 8; ++i) sums.push_back(array(kSize, i));
  for (const auto& sum : sums) push_fill(*sum, 0);
  for (int round = 1; round <= 40; ++round) {
    for (size_t i = 0; i < sums.size(); ++i) {
      engine.push(
          [this, sum = sums[i].get(), value = round + static_cast<double>(i)](RunContext run) {
            Stream& stream = *run.stream();
            Device& where = stream.device();
            auto* x = static_cast<double*>(where.allocate(kSize * sizeof(double), &stream));
            auto* y = static_cast<double*>(where.allocate(kSize * sizeof(double), &stream));
            ops().fill(stream, x, kSize, value);
            ops().fill(stream, y, kSize, -2 * value);
            ops().add(stream, x, y, x, kSize);
            where.free(y, &stream);
            ops().add(stream, x, sum->memory.data(), sum->memory.data(), kSize);
            where.free(x, &stream);
          },
          {.updates = {sums[i]->var}, .context = sums[i]->memory.context(), .name = "sum"});
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const double expected = -(40 * 41 / 2 + 40.0 * static_cast<double>(i));
    EXPECT_EQ(values(*sums[i]), std::vector<double>(kSize, expected)) << i;
  }
}

// --- Meaning.

// Random operations on matrices on all devices; a matrix on another device is copied over first.
TEST_P(StreamSuite, MeansWhatTheSerialProgramMeans) {
  constexpr size_t kRows = 4, kSize = kRows * kRows, kArrays = 6;
  for (unsigned seed = 0; seed < 4; ++seed) {
    Engine& engine = start(static_cast<int>(seed % 4) + 1);
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<StreamArray>> arrays;
    std::vector<std::vector<double>> model(kArrays, std::vector<double>(kSize));
    for (size_t i = 0; i < kArrays; ++i) {
      arrays.push_back(array(kSize, i));
      push_fill(*arrays[i], static_cast<double>(i));
      model[i].assign(kSize, static_cast<double>(i));
    }
    for (int step = 0; step < 150; ++step) {
      const size_t a = random() % kArrays, out = random() % kArrays;
      const StreamArray& from = *arrays[a];
      const StreamArray& to = *arrays[out];
      const double value = static_cast<double>(1 + random() % 4) / 16;  // products stay small
      if (random() % 3 == 0 || a == out) {
        push_fill(to, value);
        model[out].assign(kSize, value);
      } else if (from.memory.context() == to.memory.context()) {
        const bool product = random() % 2 != 0;
        engine.push(
            [this, &from, &to, product](RunContext run) {
              if (product) {
                ops().matmul(*run.stream(), from.memory.data(), from.memory.data(), to.memory.data(), kRows);
              } else {
                ops().add(*run.stream(), from.memory.data(), to.memory.data(), to.memory.data(), kSize);
              }
            },
            {.reads = {from.var}, .updates = {to.var}, .context = to.memory.context()});
        for (size_t i = 0; i < kSize; ++i) {
          if (!product) {
            model[out][i] += model[a][i];
            continue;
          }
          double sum = 0;
          for (size_t k = 0; k < kRows; ++k)
            sum += model[a][i / kRows * kRows + k] * model[a][k * kRows + i % kRows];
          model[out][i] = sum;
        }
      } else {
        engine.push(
            [&from, &to](RunContext run) {
              StreamOps::copy(*run.stream(), to.memory.data(), to.memory.context(), from.memory.data(),
                              from.memory.context(), kSize);
            },
            {.reads = {from.var},
             .writes = {to.var},
             .context = to.memory.context(),
             .lane = random() % 2 ? StreamKind::copy_in : StreamKind::comm});
        model[out] = model[a];
      }
    }
    for (size_t i = 0; i < kArrays; ++i)
      EXPECT_EQ(values(*arrays[i]), model[i]) << "seed " << seed << " array " << i;
    engine.wait_all();
  }
}

}  // namespace

}  // namespace mx::test
