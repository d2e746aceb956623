// Copies between devices, layouts and types; lifetime of memory; waiting.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/registry.h"
#include "ndarray/launch.h"
#include "ndarray/ndarray.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::error_of;
using test::Hold;

struct Layout {
  const char* name;
  NDArray (*view)(const NDArray& wide);  // from shape (6, 8) to shape (3, 4)
};

const Layout kLayouts[] = {
    {"contiguous",
     [](const NDArray& a) {
       return a.flatten()[{Slice{0, 12}}].reshape({3, 4});
     }},
    {"rows with gaps",
     [](const NDArray& a) {
       return NDArray(a[{Slice{0, 3}, Slice{2, 6}}]);
     }},
    {"steps",
     [](const NDArray& a) {
       return NDArray(a[{Slice{{}, {}, 2}, Slice{1, {}, 2}}]);
     }},
    {"backwards",
     [](const NDArray& a) {
       return NDArray(a[{Slice{4, 1, -1}, Slice{{}, {}, -2}}]);
     }},
    {"transposed",
     [](const NDArray& a) {
       return a[{Slice{1, 5}, Slice{3, 6}}].transpose();
     }},
};

TEST(Transfer, EveryLayoutOnEveryDeviceReachesEveryOther) {
  const Context contexts[] = {cpu(), virt(0), virt(1)};
  for (const Context from : contexts) {
    for (const Context to : contexts) {
      for (const Layout& source : kLayouts) {
        for (const Layout& target : kLayouts) {
          const std::string label = std::string(source.name) + " to " + target.name;
          const NDArray host = arange(48).reshape({6, 8});
          const NDArray a = source.view(host.to(from));
          NDArray wide = full({6, 8}, -1, i64, to);
          NDArray b = target.view(wide);
          b.copy_from(a);
          const std::vector<int64_t> expected = source.view(host).to_vector<int64_t>();
          EXPECT_EQ(expected, b.to_vector<int64_t>()) << label;
          EXPECT_EQ(expected, a.to(to).to_vector<int64_t>()) << label;
          int64_t outside = 0;
          for (int64_t value : wide.to_vector<int64_t>()) outside += value == -1;
          EXPECT_EQ(36, outside) << label << ": elements beside the target were written";
        }
      }
    }
  }
}

TEST(Transfer, TypesAreConvertedOnTheWay) {
  const Context contexts[] = {cpu(), virt(0), virt(1)};
  const NDArray numbers = array({0., 1., 3., 100.});
  for (DType from : kAllDTypes) {
    const std::vector<double> held = numbers.to(from).to_vector<double>();
    for (DType to : kAllDTypes) {
      const std::vector<double> expected = numbers.to(from).to(to).to_vector<double>();
      if (from != bool_ && to != bool_) {
        EXPECT_EQ(held, expected);
      }
      for (const Context source : contexts) {
        for (const Context target : contexts) {
          NDArray b = empty({4}, to, target);
          b.copy_from(numbers.to(from).to(source));
          EXPECT_EQ(expected, b.to_vector<double>()) << from << " to " << to;
          EXPECT_EQ(expected, numbers.to(from).to(source).to(to).to(target).to_vector<double>());
        }
      }
    }
  }
}

TEST(Transfer, SourcesBroadcastToTheTarget) {
  for (const Context from : {cpu(), virt(0)}) {
    for (const Context to : {cpu(), virt(0), virt(1)}) {
      NDArray target = zeros({2, 3}, i64, to);
      target.copy_from(arange(3).to(from));
      EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 0, 1, 2}), target.to_vector<int64_t>());
      target[1].copy_from(full({1, 1, 1}, 9, i32, from));
      EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 9, 9, 9}), target.to_vector<int64_t>());
      error_of<InvalidArgument>([&] { target.copy_from(zeros({2}, i64, from)); });
      error_of<InvalidArgument>([&] { target.copy_from(zeros({2, 2, 3}, i64, from)); });
    }
  }
}

// The source's memory is not allocated before its first use. The copy allocates it, on the source's own
// device.
TEST(Transfer, MemoryOfAnotherDeviceIsAllocatedThere) {
  wait_all();
  const size_t before = get_device(virt(0)).memory_stats().in_use_bytes;
  const NDArray untouched = empty({1000}, f32, virt(0));
  const NDArray copy = untouched.to(virt(1));
  copy.wait();
  wait_all();
  EXPECT_EQ(before + 4000, get_device(virt(0)).memory_stats().in_use_bytes);
}

TEST(Transfer, AWriteAfterACopyToADeviceDoesNotOvertakeIt) {
  for (int round = 0; round < 50; ++round) {
    NDArray a = zeros({20000}, i32);
    a.fill_(round);  // pushed, because it is large
    const NDArray b = a.to(virt(0));
    a[0] = -1;  // small: must not run immediately, because the copy still reads a
    EXPECT_EQ(round, b[0].item<int>());
    EXPECT_EQ(-1, a[0].item<int>());
  }
}

TEST(Transfer, AWriteDoesNotOvertakeACopyThatWaitsBehindAnotherWrite) {
  Hold hold;
  NDArray a = zeros({20000}, i32);
  NDArray target = zeros({20000}, i32, virt(0));
  Engine& engine = current_engine();
  target.wait();
  engine.push_async(hold.operation(), {.updates = {target.var()}, .name = "held"});
  a.fill_(1);           // pushed, and ends well before the copy may start
  target.copy_from(a);  // this copy is held
  a.wait();
  a[0] = 2;
  hold.release();
  EXPECT_EQ(1, target[0].item<int>());
  EXPECT_EQ(2, a[0].item<int>());
}

struct Usage {
  size_t cpu, first, second;
  bool operator==(const Usage&) const = default;
};

Usage usage() {
  wait_all();
  // Memory freed in the order of a stream is free once that stream's work has ended.
  for (int i = 0; i < 2; ++i) {
    for (const Context context : {cpu(), virt(0), virt(1)}) {
      const NDArray last = ones({1}, f32, context);
      last.wait();
    }
    wait_all();
  }
  const auto in_use = [](Context c) { return get_device(c).memory_stats().in_use_bytes; };
  return {in_use(cpu()), in_use(virt(0)), in_use(virt(1))};
}

TEST(Memory, NothingIsLeftWhenAllArraysAreGone) {
  (void)ones({1}, f32, virt(0)).to(virt(1)).to(cpu()).item<float>();
  const Usage before = usage();
  {
    std::vector<NDArray> kept;
    for (int i = 0; i < 20; ++i) {
      NDArray a = full({1000 * (i + 1)}, i, f32);
      const NDArray b = a.to(virt(0));
      NDArray c = b.to(virt(1)).to(f64);
      c[{Slice{10, 20}}] = 5;
      a.copy_from(c);
      kept.push_back(a);
      kept.push_back(b[{Slice{{}, {}, 2}}].clone());
      kept.push_back(empty({100000}));  // never used
    }
    EXPECT_NE(before, usage());
  }
  EXPECT_EQ(before, usage());
}

TEST(Memory, OutsideMemoryIsReleasedOnceAfterItsLastUse) {
  static std::atomic<int> released;
  released = 0;
  std::vector<float> memory(20000, 1.f);
  {
    NDArray view;
    {
      NDArray a = from_external(memory.data(), f32, {100, 200}, {200, 1}, [] { ++released; });
      a.fill_(2);
      view = a[5].transpose();
      const NDArray on_device = a.to(virt(0));
      EXPECT_EQ(2.f, on_device[3][3].item<float>());
      a[7] = 3;
    }
    wait_all();
    EXPECT_EQ(0, released) << "a view still uses it";
    EXPECT_EQ(2.f, view[1].item<float>());
  }
  wait_all();
  wait_all();
  EXPECT_EQ(1, released);
  EXPECT_EQ(2.f, memory[0]);
  EXPECT_EQ(3.f, memory[7 * 200]);
}

TEST(Memory, OutsideMemoryNeedsNoFunctionThatReleasesIt) {
  test::LogCapture log;
  float memory[3] = {1, 2, 3};
  { EXPECT_EQ(3.f, from_external(memory, f32, {3}, {1}, {})[2].item<float>()); }
  EXPECT_TRUE(log.lines().empty());
}

TEST(Memory, OutsideMemoryMayLieBackwards) {
  int values[] = {1, 2, 3, 4, 5, 6};
  NDArray a = from_external(values + 5, i32, {3, 2}, {-2, -1}, [] {});
  EXPECT_EQ((std::vector<int>{6, 5, 4, 3, 2, 1}), a.to_vector<int>());
  a[0] = 0;
  a.wait();
  EXPECT_EQ(0, values[5]);
  EXPECT_EQ(4, values[3]);
  EXPECT_EQ(0, from_external(nullptr, f32, {0, 3}, {3, 1}, [] {}).numel());
  error_of<InvalidArgument>([] { from_external(nullptr, f32, {1}, {1}, [] {}); });
  error_of<InvalidArgument>([&] { from_external(values, i32, {2}, {}, [] {}); });
}

TEST(Wait, ALimitPassesAndTheArrayIsGoodAfterwards) {
  Hold hold;
  const NDArray large = zeros({20000});
  NDArray b = zeros({20000});
  b.wait();
  current_engine().push_async(hold.operation(), {.updates = {b.var()}, .name = "held"});
  b.copy_from(large);
  EXPECT_FALSE(b.wait(0));
  EXPECT_FALSE(b.wait(1));
  hold.release();
  EXPECT_TRUE(b.wait(60000));
  b.wait();
}

}  // namespace
}  // namespace mx
