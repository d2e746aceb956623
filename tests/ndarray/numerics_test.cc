// set_check_numerics(): finds the operation that creates the first value that is not finite. direct_test.cc
// tests operators.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "ndarray/launch.h"
#include "ndarray/ndarray.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// x[0] = 1 / (x[0] - 1): infinite if x[0] was 1.
void run_spoil(const KernelArgs& args) {
  float& first = args.in[0].as<float>()[0];
  first = 1 / (first - 1);
}
const Kernel kSpoil = {"spoil", run_spoil, nullptr, 100};

class Numerics : public test::EngineTest {
 protected:
  Numerics() { set_check_numerics(true); }
  ~Numerics() override { set_check_numerics(false); }

  static void expect_named(const std::string& text, const std::string& op, int line) {
    EXPECT_TRUE(contains(text, "[" + op + "] expected")) << text;
    EXPECT_TRUE(contains(text, "numerics_test.cc:" + std::to_string(line))) << text;
  }
  void TearDown() override { EXPECT_THROW(e_.wait_all(), NumericError); }

  EngineScope scope_{e_};
};
INSTANTIATE_TEST_SUITE_P(Modes, Numerics, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Numerics, AConversionThatMakesAnInfinityIsReported) {
  for (const Context context : {cpu(), virt(0)}) {
    for (const int64_t size : {10, 100'000}) {
      const NDArray large = full({size}, 1e30, f32, context);
      const NDArray half = large.to(f16);
      const int line = __LINE__ - 1;
      const std::string text = error_of<NumericError>([&] { half.wait(); });
      expect_named(text, "copy", line);
      EXPECT_TRUE(contains(text, "f16") && contains(text, "f32 (" + std::to_string(size))) << text;
      NDArray target = zeros({size}, f16, context);
      target.copy_from(large);
      expect_named(error_of<NumericError>([&] { target.wait(); }), "copy", __LINE__ - 1);
      NDArray part = zeros({size, 2}, f16, context);
      part[{colon, 0}] = large;
      expect_named(error_of<NumericError>([&] { part.wait(); }), "copy", __LINE__ - 1);
      EXPECT_EQ(1e30f, large.to(bf16).to(f64)[0].item<double>() > 0.9e30 ? 1e30f : 0);
    }
  }
}

TEST_P(Numerics, AnInfinityThatWasAskedForIsNotReported) {
  for (const Context context : {cpu(), virt(0)}) {
    EXPECT_EQ(kInfinity, full({2}, kInfinity, f16, context)[0].item<double>());
    EXPECT_EQ(kInfinity, scalar_array(kInfinity, f32, context).item<double>());
    EXPECT_EQ(kInfinity, full({2}, kInfinity, f32, context).to(f16)[0].item<double>());
    const NDArray made = full({2}, 1e30, f32, context).to(f16);
    expect_named(error_of<NumericError>([&] { made.wait(); }), "copy", __LINE__ - 1);
  }
}

TEST_P(Numerics, AnInputThatIsChangedInPlaceIsLookedAt) {
  for (const Context context : {cpu(), virt(0)}) {
    const NDArray x = full({4}, 1, f32, context);
    detail::ArrayImpl* const inputs[] = {&x.impl()};
    const int line = __LINE__ + 1;
    launch({.kernel = &kSpoil, .inputs = inputs, .updated_inputs = 1, .work = 1});
    const std::string text = error_of<NumericError>([&] { x.wait(); });
    expect_named(text, "spoil", line);
    EXPECT_TRUE(contains(text, "changed input 0") && contains(text, "(4,)")) << text;
  }
}

}  // namespace
}  // namespace mx
