// Random arrays: which state their numbers come from, and what they do not depend on. random_test.cc tests
// the distributions with the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "operators/kernels/random.h"
#include "operators/operators.h"
#include "tests/operators/oracle.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Host;

/// Returns one array of each distribution, in a fixed order.
std::vector<NDArray> all_of(Generator g, int64_t n) {
  const Context context = g.context();
  const NDArray p = full({n}, 0.25, f32, context);
  const NDArray weights = array({{1.f, 0.f, 3.f}, {0.5f, 0.25f, 0.25f}}).to(context);
  const NDArray x = ones({n}, f32, context);
  const Dropout d = dropout_with_mask(x, 0.3, &g);
  return {g.rand({n}),
          g.uniform(-2, 3, {n}, f64),
          g.randn({n}, f64),
          g.normal(5, 2, {n}),
          g.randint(-5, 9, {n}),
          g.bernoulli(0.3, {n}, bool_),
          g.bernoulli(p),
          g.exponential(2, {n}),
          g.gamma(2, 0.5, {n}),
          g.poisson(4, {n}),
          g.permutation(n),
          g.categorical(weights, n),
          g.shuffle(arange(n).to(context)),
          d.values,
          d.mask,
          g.rand({n}, f16)};
}

std::vector<std::vector<double>> values_of(const std::vector<NDArray>& arrays) {
  std::vector<std::vector<double>> values;
  for (const NDArray& a : arrays) values.push_back(a.to_vector<double>());
  return values;
}

TEST(Random, IsTheKernelsStreamFromPositionToPosition) {
  Generator g(42);
  const std::vector<double> a = g.rand({3, 5}).to_vector<double>(),
                            b = g.normal(1, 2, {7}, f64).to_vector<double>();
  std::vector<float> uniform(15);
  kernels::random_uniform({uniform.data(), f32, {15}, {1}}, 0, 1, 42, 0);
  std::vector<double> normal(7);
  kernels::random_normal({normal.data(), f64, {7}, {1}}, 1, 2, 42, 15);
  EXPECT_EQ(std::vector<double>(uniform.begin(), uniform.end()), a);
  EXPECT_EQ(normal, b);
  EXPECT_EQ((std::vector<int64_t>{42, 22}), g.state().to_vector<int64_t>());
}

TEST(Random, RepeatsAfterItsSeed) {
  for (Context context : {cpu(), virt(0)}) {
    manual_seed(7);
    const std::vector<float> a = rand({100}, f32, context).to_vector<float>();
    const std::vector<float> b = rand({100}, f32, context).to_vector<float>();
    EXPECT_NE(a, b);
    manual_seed(7);
    EXPECT_EQ(a, rand({100}, f32, context).to_vector<float>());
    manual_seed(8);
    EXPECT_NE(a, rand({100}, f32, context).to_vector<float>());
    Generator g(7, context), same = g;
    EXPECT_EQ(a, g.rand({100}).to_vector<float>());
    EXPECT_EQ(b, same.rand({100}).to_vector<float>());
    g.seed(7);
    EXPECT_EQ(a, same.rand({100}).to_vector<float>());
  }
  EXPECT_EQ(&default_generator(), &default_generator(cpu()));
  EXPECT_NE(&default_generator(), &default_generator(virt(0)));
}

TEST(Random, FreeFunctionsAreThoseOfTheDefaultGenerator) {
  manual_seed(3);
  Generator g(3);
  const NDArray w = array({{1.f, 2.f}}), p = full({9}, 0.5), x = arange(20);
  EXPECT_EQ(g.uniform(1, 2, {9}).to_vector<float>(), uniform(1, 2, {9}).to_vector<float>());
  EXPECT_EQ(g.randn({9}).to_vector<float>(), randn({9}).to_vector<float>());
  EXPECT_EQ(g.normal(1, 2, {9}).to_vector<float>(), normal(1, 2, {9}).to_vector<float>());
  EXPECT_EQ(g.randint(0, 99, {9}).to_vector<int64_t>(), randint(0, 99, {9}).to_vector<int64_t>());
  EXPECT_EQ(g.bernoulli(0.5, {9}).to_vector<float>(), bernoulli(0.5, {9}).to_vector<float>());
  EXPECT_EQ(g.bernoulli(p).to_vector<float>(), bernoulli(p).to_vector<float>());
  EXPECT_EQ(g.exponential(1, {9}).to_vector<float>(), exponential(1, {9}).to_vector<float>());
  EXPECT_EQ(g.gamma(1, 2, {9}).to_vector<float>(), gamma(1, 2, {9}).to_vector<float>());
  EXPECT_EQ(g.poisson(1, {9}).to_vector<int64_t>(), poisson(1, {9}).to_vector<int64_t>());
  EXPECT_EQ(g.permutation(9).to_vector<int64_t>(), permutation(9).to_vector<int64_t>());
  EXPECT_EQ(g.categorical(w, 9).to_vector<int64_t>(), categorical(w, 9).to_vector<int64_t>());
  EXPECT_EQ(g.shuffle(x).to_vector<int64_t>(), shuffle(x).to_vector<int64_t>());
}

TEST(Random, StaysInItsRange) {
  Generator g(1);
  const Host u(g.uniform(-1, 2, {5000})), i(g.randint(-3, 4, {5000}, i8)), e(g.exponential(2, {5000}));
  for (double v : u.v) EXPECT_TRUE(v >= -1 && v < 2) << v;
  EXPECT_EQ(-3, *std::min_element(i.v.begin(), i.v.end()));
  EXPECT_EQ(3, *std::max_element(i.v.begin(), i.v.end()));
  EXPECT_NEAR(0.5, std::accumulate(e.v.begin(), e.v.end(), 0.0) / 5000, 0.05);
  std::vector<int64_t> p = g.permutation(5000).to_vector<int64_t>();
  EXPECT_FALSE(std::is_sorted(p.begin(), p.end()));
  std::sort(p.begin(), p.end());
  EXPECT_EQ(arange(5000).to_vector<int64_t>(), p);
  const NDArray c = g.categorical(array({0.f, 1.f, 0.f, 3.f}), 4000);
  const Host counts(c);
  EXPECT_EQ(Shape({4000}), c.shape());
  EXPECT_EQ(
      0, std::count(counts.v.begin(), counts.v.end(), 0) + std::count(counts.v.begin(), counts.v.end(), 2));
  EXPECT_NEAR(1000, static_cast<double>(std::count(counts.v.begin(), counts.v.end(), 1)), 150);
  EXPECT_EQ(0, g.rand({0, 3}).numel());
  EXPECT_EQ(Shape(), g.rand({}).shape());
  EXPECT_EQ(f64, g.randn({2}, f64).dtype());
}

TEST(Random, ShufflesRowsAsAWhole) {
  Generator g(5);
  NDArray x = arange(200).reshape({50, 4});
  const std::vector<int64_t> before = x.to_vector<int64_t>();
  const Host y(g.shuffle(x));
  std::vector<bool> seen(50);
  for (size_t row = 0; row < 50; ++row) {
    const auto first = static_cast<int64_t>(y.v[row * 4]);
    ASSERT_EQ(0, first % 4);
    seen[static_cast<size_t>(first / 4)] = true;
    for (size_t k = 1; k < 4; ++k)
      EXPECT_EQ(static_cast<double>(first + static_cast<int64_t>(k)), y.v[row * 4 + k]);
  }
  EXPECT_EQ(50, std::count(seen.begin(), seen.end(), true));
  EXPECT_EQ(before, x.to_vector<int64_t>());
  g.seed(5);
  g.shuffle_(x);
  EXPECT_EQ(y.v, x.to_vector<double>());
}

TEST(Random, ParametersThatMakeNoSenseAreRefusedAndCostNothing) {
  Generator g(9);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { g.uniform(1, 1, {2}); }, [&] { g.uniform(0, INFINITY, {2}); }, [&] { g.normal(0, -1, {2}); },
           [&] { g.normal(NAN, 1, {2}); }, [&] { g.bernoulli(1.5, {2}); }, [&] { g.bernoulli(NAN, {2}); },
           [&] { g.exponential(0, {2}); }, [&] { g.gamma(0, 1, {2}); }, [&] { g.gamma(1, -1, {2}); },
           [&] { g.poisson(-1, {2}); }, [&] { g.randint(3, 3, {2}); }, [&] { g.permutation(-1); },
           [&] { g.rand({2}, i32); }, [&] { g.rand({-1}); }, [&] { g.categorical(ones({}), 2); },
           [&] { g.shuffle(ones({})); }, [&] { g.poisson(1, {2}, bool_); }, [&] { dropout(ones({2}), 1.5); },
           [&] { dropout(ones({2}), NAN); }})
    error_of<InvalidArgument>(call);
  EXPECT_EQ((std::vector<int64_t>{9, 0}), g.state().to_vector<int64_t>());
}

TEST(Random, AFailureDoesNotTakeTheGeneratorWithIt) {
  Generator g(9);
  const NDArray bad = g.categorical(array({1.f, -1.f}), 3);
  const NDArray good = g.rand({4});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { bad.wait(); }), "-1"));
  EXPECT_EQ(4u, good.to_vector<float>().size());
  EXPECT_EQ((std::vector<int64_t>{9, 7}), g.state().to_vector<int64_t>());
}

TEST(Dropout, KeepsWhatItsMaskSays) {
  for (DType type : {f32, f64, f16, bf16}) {
    for (double p : {0.0, 0.25, 1.0}) {
      Generator g(11);
      const NDArray x = (arange(3000).reshape({50, 60}).to(f32) + 1.f).to(type).transpose();
      const Dropout d = dropout_with_mask(x, p, &g);
      ASSERT_EQ(type, d.values.dtype());
      ASSERT_EQ(bool_, d.mask.dtype());
      const Host y(d.values), m(d.mask), h(x);
      double kept = 0;
      for (size_t i = 0; i < y.v.size(); ++i) {
        kept += m.v[i];
        const double expected = m.v[i] != 0 ? h.v[i] / (1 - p) : 0;
        ASSERT_NEAR(expected, y.v[i], expected * (type == bf16 ? 8e-3 : type == f16 ? 1e-3 : 1e-6));
      }
      EXPECT_NEAR(3000 * (1 - p), kept, p == 0.25 ? 100 : 0);
    }
  }
  const NDArray x = array({NAN, 1.f});
  EXPECT_EQ((std::vector<float>{0, 0}), dropout(x, 1).to_vector<float>());
  EXPECT_TRUE(dropout(x, 0.5, false).shares_memory(x));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { dropout(arange(3), 0.5); }), "floating"));
}

class RandomEngine : public test::EngineTest {};

TEST_P(RandomEngine, GivesTheSameNumbers) {
  static std::vector<std::vector<double>> expected = values_of(all_of(Generator(123), 40000));
  EngineScope scope(e_);
  for (Context context : {cpu(), virt(0)}) {
    EXPECT_EQ(expected, values_of(all_of(Generator(123, context), 40000))) << context;
    manual_seed(6);
    const NDArray a = rand({5000}, f32, context), b = rand({3}, f32, context);
    const std::vector<float> second = b.to_vector<float>();
    manual_seed(6);
    EXPECT_EQ(a.to_vector<float>(), rand({5000}, f32, context).to_vector<float>());
    EXPECT_EQ(second, rand({3}, f32, context).to_vector<float>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, RandomEngine, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST(Random, AReplayGoesOnInTheStream) {
  Engine engine;
  EngineScope scope(engine);
  Generator g(4);
  NDArray x = zeros({1000});
  g.rand({1000}).wait();
  Segment segment = engine.record([&] { x.copy_from(g.rand({1000})); });
  std::vector<std::vector<float>> got;
  for (int k = 0; k < 3; ++k) {
    segment.replay();
    got.push_back(x.to_vector<float>());
  }
  Generator same(4);
  same.rand({1000});
  for (const std::vector<float>& values : got) EXPECT_EQ(same.rand({1000}).to_vector<float>(), values);
}

TEST(RandomLike, HasTheShapeTypeAndDeviceOfTheArray) {
  const NDArray like = zeros({3, 5}, f64, virt(0));
  manual_seed(3);
  const NDArray uniform = rand_like(like), normal = randn_like(like.T());
  EXPECT_EQ((Shape{3, 5}), uniform.shape());
  EXPECT_EQ((Shape{5, 3}), normal.shape());
  EXPECT_EQ(f64, normal.dtype());
  EXPECT_EQ(virt(0), normal.context());
  manual_seed(3);
  EXPECT_EQ(rand({3, 5}, f64, virt(0)).to_vector<double>(), uniform.to_vector<double>());
  EXPECT_EQ(randn({5, 3}, f64, virt(0)).to_vector<double>(), normal.to_vector<double>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { randn_like(arange(3)); }), "random_op_test.cc"));
}

}  // namespace
}  // namespace mx
