// Arrays on a GPU: creation, copies, views and reads give what they give on the CPU.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "operators/operators.h"
#include "tests/cuda/operators/compare.h"

namespace mx {
namespace {

using Case = std::pair<const char*, std::function<NDArray(Context)>>;

/// 0, 1, 2, ... of that shape, made on the CPU.
NDArray counted(const Shape& shape, DType dtype, Context context) {
  return arange(shape.numel(), f64, cpu()).reshape(shape).to(dtype).to(context);
}

void expect_same(const std::vector<Case>& cases) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  for (const auto& [name, make] : cases) {
    SCOPED_TRACE(name);
    try {
      const NDArray made = make(device);
      EXPECT_EQ(device, made.context());
      EXPECT_EQ("", test::difference_of(make(cpu()), made));
    } catch (const Error& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

TEST(ArraysOnGpu, AreCreatedAsOnTheCpu) {
  std::vector<Case> cases;
  for (const DType dtype : kAllDTypes) {
    cases.push_back({"zeros", [=](Context c) { return zeros({3, 5}, dtype, c); }});
    cases.push_back({"ones of a large size", [=](Context c) { return ones({1'000'003}, dtype, c); }});
    cases.push_back({"full", [=](Context c) { return full({2, 1, 7}, 1, dtype, c); }});
    cases.push_back({"no elements", [=](Context c) { return zeros({0, 4}, dtype, c); }});
    cases.push_back({"rank 0", [=](Context c) { return full({}, 1, dtype, c); }});
    if (dtype != bool_) cases.push_back({"arange", [=](Context c) { return arange(1, 100, 3, dtype, c); }});
    cases.push_back({"eye", [=](Context c) { return eye(5, 7, dtype, c); }});
  }
  cases.push_back({"arange of fractions", [](Context c) { return arange(0.1, 5000, 0.1, f64, c); }});
  cases.push_back({"linspace", [](Context c) { return linspace(-1, 1, 1001, f32, c); }});
  expect_same(cases);
}

TEST(ArraysOnGpu, AreCopiedAndConvertedAsOnTheCpu) {
  std::vector<Case> cases;
  for (const DType from : kAllDTypes)
    for (const DType to : kAllDTypes) {
      cases.push_back({"converted", [=](Context c) { return counted({3, 41}, from, c).to(to); }});
      cases.push_back({"converted and transposed", [=](Context c) {
                         return counted({3, 41}, from, c).transpose().to(to);
                       }});
    }
  const auto odd = [](Context c) {
    return array({0.5f, -1.5f, 3e9f, -3e9f, 1e20f, -1e20f, 300.f, -300.f, 0.f}).to(c);
  };
  for (const DType to : kAllDTypes)
    cases.push_back({"out of range", [=](Context c) { return odd(c).to(to); }});
  expect_same(cases);
}

TEST(ArraysOnGpu, AreViewedAndWrittenAsOnTheCpu) {
  expect_same({
      {"a slice",
       [](Context c) {
         return counted({100, 7}, f32, c)[{Slice{3, 90, 4}, Slice{1, 6}}].clone();
       }},
      {"a slice at an odd address",
       [](Context c) {
         return counted({1001}, f16, c)[{Slice{1, {}}}].clone();
       }},
      {"a reversed view",
       [](Context c) {
         return flip(counted({5, 6, 7}, i32, c), {0, 2}).clone();
       }},
      {"a transposed view",
       [](Context c) {
         return counted({2, 3, 4, 5, 6, 7}, i64, c).transpose({5, 3, 1, 0, 2, 4}).clone();
       }},
      {"a large transposed view",
       [](Context c) {
         return counted({1000, 1001}, f32, c).transpose().clone();
       }},
      {"a broadcast view",
       [](Context c) {
         return counted({50, 1}, f64, c).broadcast_to({3, 50, 20}).clone();
       }},
      {"fill_ of a view",
       [](Context c) {
         NDArray a = counted({20, 30}, f32, c);
         a[{Slice{2, 10}, Slice{{}, {}, 3}}].fill_(-1);
         return a;
       }},
      {"copy_from into a view",
       [](Context c) {
         NDArray a = zeros({20, 30}, f32, c);
         a.transpose().copy_from(counted({30, 20}, i32, c));
         return a;
       }},
      {"copy_from of the CPU into a view",
       [](Context c) {
         NDArray a = zeros({20, 30}, bf16, c);
         NDArray part = a[{Slice{{}, {}, 2}}];
         part.copy_from(counted({10, 30}, f32, cpu()));
         return a;
       }},
      {"an overlapping copy",
       [](Context c) {
         NDArray a = counted({100}, f32, c);
         a[{Slice{1, {}}}].copy_from(a[{Slice{0, 99}}]);
         return a;
       }},
      {"operations in place",
       [](Context c) {
         NDArray a = counted({30, 40}, f32, c);
         a += 1;
         a.transpose() *= counted({40, 30}, f32, c);
         a[{Slice{0, 10}}] -= a[{Slice{10, 20}}];
         return a;
       }},
  });
}

TEST(ArraysOnGpu, AreReadAsOnTheCpu) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  const NDArray a = counted({3, 4}, f32, device);
  EXPECT_EQ(7.f, a[{1, 3}].item<float>());
  EXPECT_EQ(counted({3, 4}, f32, cpu()).transpose().to_vector<float>(), a.transpose().to_vector<float>());
  EXPECT_EQ(std::vector<int64_t>({1, 5, 9}), a[{colon, 1}].to(i64).to_vector<int64_t>());
  const std::string text = to_string(a), expected = to_string(a.to(cpu()));
  EXPECT_EQ(expected.substr(0, expected.find(']')), text.substr(0, text.find(']')));
}

TEST(ArraysOnGpu, OfLargeSizesAreComputedAsOnTheCpu) {
  std::vector<Case> cases;
  for (const DType dtype : {f32, f16, bf16, f64}) {
    const auto wave = [=](const Shape& shape, Context c) {
      return (counted(shape, f32, cpu()) % 1009 / 505 - 1).to(dtype).to(c);
    };
    cases.push_back({"exp", [=](Context c) { return exp(wave({300'001}, c)); }});
    cases.push_back({"a sum of views at odd addresses", [=](Context c) {
                       return wave({300'001}, c)[{Slice{1, {}}}] + wave({300'000}, c);
                     }});
    cases.push_back({"a product of broadcast arrays", [=](Context c) {
                       return wave({501, 1}, c) * wave({1, 777}, c);
                     }});
    cases.push_back({"a row added to a matrix", [=](Context c) {
                       return wave({1000, 333}, c) + wave({333}, c);
                     }});
    cases.push_back({"a number", [=](Context c) { return 2.5 - wave({77'777}, c) * 3; }});
    cases.push_back(
        {"rank 6", [=](Context c) {
           return wave({3, 4, 5, 6, 7, 8}, c).transpose({5, 4, 3, 2, 1, 0}) * wave({8, 1, 6, 1, 4, 3}, c);
         }});
    cases.push_back({"where", [=](Context c) {
                       const NDArray x = wave({70'001}, c);
                       return where(x > 0, x, x * 0.1);
                     }});
    cases.push_back({"concat", [=](Context c) {
                       return concat({wave({100, 33}, c), wave({100, 20}, c)}, 1);
                     }});
  }
  expect_same(cases);
}

}  // namespace
}  // namespace mx
