// Operators of an array and a number: exact comparisons, numbers that do not fit, a single operation,
// gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/segment.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/launch.h"
#include "operators/kernels/binary.h"
#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

constexpr int64_t kMost64 = std::numeric_limits<int64_t>::max(),
                  kLeast64 = std::numeric_limits<int64_t>::min();

using Function = NDArray (*)(const Operand&, const Operand&);
/// On the machines that run this test, a long double represents every 64-bit integer and every double.
using Wide = long double;
static_assert(std::numeric_limits<Wide>::digits >= 64);

struct Comparison {
  const char* name;
  Function function;
  bool (*plain)(Wide, Wide);
};

const Comparison kComparisons[] = {
    {"==", equal, [](Wide a, Wide b) { return a == b; }},
    {"!=", not_equal, [](Wide a, Wide b) { return a != b; }},
    {"<", less, [](Wide a, Wide b) { return a < b; }},
    {"<=", less_equal, [](Wide a, Wide b) { return a <= b; }},
    {">", greater, [](Wide a, Wide b) { return a > b; }},
    {">=", greater_equal, [](Wide a, Wide b) { return a >= b; }},
    {"and", logical_and, [](Wide a, Wide b) { return a != 0 && b != 0; }},
    {"or", logical_or, [](Wide a, Wide b) { return a != 0 || b != 0; }},
    {"xor", logical_xor, [](Wide a, Wide b) { return (a != 0) != (b != 0); }},
};

std::vector<Scalar> interesting_numbers() {
  std::vector<Scalar> list = {true, false};
  for (const int64_t n : {int64_t{0},
                          int64_t{1},
                          int64_t{-1},
                          int64_t{2},
                          int64_t{127},
                          int64_t{128},
                          int64_t{-128},
                          int64_t{-129},
                          int64_t{255},
                          int64_t{256},
                          int64_t{INT32_MAX},
                          int64_t{INT32_MAX} + 1,
                          int64_t{INT32_MIN} - 1,
                          int64_t{2049},
                          int64_t{70000},
                          (int64_t{1} << 24) + 1,
                          (int64_t{1} << 53) + 1,
                          kMost64,
                          kMost64 - 1,
                          kLeast64})
    list.emplace_back(n);
  for (const uint64_t n : {uint64_t{1} << 63, (uint64_t{1} << 63) + 1, ~uint64_t{0}}) list.emplace_back(n);
  for (const double n : {0.1,
                         0.5,
                         -0.5,
                         -0.0,
                         1.5,
                         3e9,
                         -3e9,
                         255.5,
                         -128.5,
                         0x1p63,
                         -0x1p63,
                         0x1p64,
                         65504.,
                         1e5,
                         1e30,
                         1e39,
                         1e-30,
                         -1e-300,
                         0x1p53 + 2,
                         test::kInfinity,
                         -test::kInfinity,
                         test::kNan})
    list.emplace_back(n);
  return list;
}

template <class T>
std::vector<T> interesting_elements() {
  using L = std::numeric_limits<T>;
  std::vector<T> list;
  if constexpr (std::is_same_v<T, bool>) {
    return {};
  } else if constexpr (std::is_integral_v<T>) {
    list = {T{0},
            T{1},
            T{2},
            L::max(),
            static_cast<T>(L::max() - 1),
            L::min(),
            static_cast<T>(L::min() + 1),
            static_cast<T>(-1)};
    if constexpr (sizeof(T) == 8)
      for (const int64_t n :
           {int64_t{1} << 53, (int64_t{1} << 53) + 1, (int64_t{1} << 53) + 2, int64_t{3000000000}})
        list.push_back(n);
  } else {
    for (const double v : {0.,
                           -0.,
                           0.1,
                           0.5,
                           1.,
                           -1.,
                           1.5,
                           2048.,
                           65504.,
                           -65504.,
                           0x1p24,
                           0x1p53,
                           0x1p53 + 2,
                           1e5,
                           1e30,
                           0x1p63,
                           0x1p64,
                           -0x1p63,
                           1e-30,
                           6e-8,
                           test::kInfinity,
                           -test::kInfinity,
                           test::kNan,
                           255.5,
                           3e9})
      list.push_back(convert<T>(v));
  }
  return list;
}

NDArray elements_of(DType dtype) {
  return visit(dtype, [](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>) {
      return array(std::vector<bool>{false, true});
    } else {
      return array(interesting_elements<T>());
    }
  });
}

std::vector<Wide> exact_elements(DType dtype) {
  return visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    std::vector<Wide> list;
    for (const T value : elements_of(dtype).to_vector<T>()) {
      if constexpr (sizeof(T) == 2) {
        list.push_back(static_cast<float>(value));
      } else {
        list.push_back(static_cast<Wide>(value));
      }
    }
    return list;
  });
}

/// Returns the value that the number has next to elements of type `dtype`.
Wide meaning(const Scalar& number, DType dtype) {
  if (!number.floating())
    return number.fits() ? static_cast<Wide>(number.integer()) : static_cast<Wide>(number.unsigned_integer());
  if (is_floating(dtype) && fits(number, dtype)) {
    const double rounded = full({}, number, dtype).item<double>();
    if (rounded != 0) return rounded;
  }
  return number.real();
}

TEST(NumberOperand, ComparisonsAreExactForEveryTypeAndEveryNumber) {
  for (const DType dtype : kAllDTypes) {
    const NDArray x = elements_of(dtype);
    const std::vector<Wide> exact = exact_elements(dtype);
    for (const Scalar& number : interesting_numbers()) {
      const Wide other = meaning(number, dtype);
      for (const Comparison& c : kComparisons) {
        const NDArray right = c.function(x, number), left = c.function(number, x);
        ASSERT_EQ(bool_, right.dtype());
        const auto got = right.to_vector<bool>(), mirrored = left.to_vector<bool>();
        for (size_t i = 0; i < exact.size(); ++i) {
          ASSERT_EQ(c.plain(exact[i], other), got[i])
              << dtype << ' ' << static_cast<double>(exact[i]) << ' ' << c.name << ' ' << number;
          ASSERT_EQ(c.plain(other, exact[i]), mirrored[i])
              << number << ' ' << c.name << ' ' << static_cast<double>(exact[i]) << ' ' << dtype;
        }
      }
    }
  }
}

TEST(NumberOperand, ComparisonsOfFloatsMeetTheNumberInTheirType) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    const NDArray x = full({3}, 0.1, dtype);
    EXPECT_TRUE(all(x == 0.1).item<bool>()) << dtype;
    EXPECT_FALSE(any(x > 0.1).item<bool>()) << dtype;
    EXPECT_TRUE(all(full({3}, test::kInfinity, dtype) > 1e300).item<bool>()) << "no number becomes infinite";
    EXPECT_FALSE(any(zeros({3}, dtype) >= 1e-320).item<bool>() && dtype != f64) << "nor 0";
  }
}

// The form with a number gives the same results as two arrays, for numbers that the type can represent.
TEST(NumberOperand, GivesWhatAnArrayOfTheNumberGives) {
  int found = 0;
  for (const Operator* op : all_operators()) {
    const std::string name = op->name();
    if (std::string(op->family) != "scalar") continue;
    const Operator* const two = find_operator(name.substr(0, name.size() - std::string("_scalar").size()));
    ASSERT_NE(nullptr, two) << name;
    ++found;
    for (const DType dtype : op->dtypes) {
      for (const int value : {0, 1, 2, 3, 5}) {
        for (const bool left : {false, true}) {
          NDArray x = array({0.75f, 0.25f, 1.f, 2.f, 0.f, 3.f, 7.f}).to(dtype);
          const DType type = promote_weak(dtype, i64);
          const NDArray number = full({}, value, type);
          const NDArray inputs[] = {left ? number : x.to(type), left ? x.to(type) : number};
          const NDArray want = call(*two, {}, inputs)[0];
          const AttrMap attrs = {{"number", int64_t{value}}, {"left", left}};
          const NDArray got = call(*op, Attrs::from_map(op->attrs, attrs, op->name()), x);
          const std::string what = detail::concat(name, ' ', value, left ? " left of " : " right of ", dtype);
          EXPECT_EQ(want.dtype(), got.dtype()) << what;
          test::expect_values(test::values(want), got, what, 2);
        }
      }
    }
  }
  EXPECT_GT(found, 0);
}

TEST(NumberOperand, HasAFormOfEveryBinaryOperator) {
  for (int i = 0; i < kernels::kBinaryOps; ++i) {
    const Operator* const op = find_operator(kernels::to_string(static_cast<kernels::BinaryOp>(i)));
    ASSERT_NE(nullptr, op) << i;
    const Operator* const number = find_operator(std::string(op->name()) + "_scalar");
    ASSERT_NE(nullptr, number) << op->name();
    EXPECT_EQ(op->gradient == nullptr, number->gradient == nullptr) << op->name();
  }
}

TEST(NumberOperand, HasAFormOfEveryElementwiseOperatorOfTwoOperands) {
  int found = 0;
  for (const Operator* op : all_operators()) {
    if (std::string(op->family) != "elementwise" || op->inputs.size() != 2) continue;
    ASSERT_NE(nullptr, op->number_form) << op->name();
    EXPECT_EQ(op->number_form, find_operator(std::string(op->name()) + "_scalar"));
    EXPECT_EQ(op->gradient == nullptr, op->number_form->gradient == nullptr) << op->name();
    ++found;
  }
  EXPECT_GT(found, kernels::kBinaryOps) << "xlogy, gcd and lcm too";
}

TEST(NumberOperand, OfIntegerFunctionsIsAnInteger) {
  const NDArray x = array<int64_t>({12, -18, 0, INT64_MIN});
  EXPECT_EQ((test::Values{4, 2, 8, 8}), test::values(gcd(x, 8)));
  EXPECT_EQ((test::Values{4, 2, 8, 8}), test::values(gcd(-8, x)));
  EXPECT_EQ((test::Values{60, 90, 0}), test::values(lcm(x[Slice{0, 3}], 10 - 5)));
  EXPECT_EQ(u8, gcd(ones({2}, u8), 255).dtype());
  for (const auto& f : {+[] { gcd(ones({2}, i32), 1.5); }, +[] { lcm(1.5, ones({2}, i32)); },
                        +[] { gcd(ones({2}), 2); }, +[] { gcd(ones({2}, bool_), 2); }})
    EXPECT_TRUE(contains(error_of<InvalidArgument>(f), "expected integers"));
}

TEST(NumberOperand, ThatDoesNotFitTheTypeOfTheResultThrows) {
  struct Case {
    NDArray (*f)(const NDArray&);
    DType dtype;
    const char* number;
  };
  const Case cases[] = {
      {[](const NDArray& x) { return x + 300; }, u8, "300"},
      {[](const NDArray& x) { return 300 - x; }, u8, "300"},
      {[](const NDArray& x) { return x * -1; }, u8, "-1"},
      {[](const NDArray& x) { return x & -1; }, u8, "-1"},
      {[](const NDArray& x) { return x % 256; }, u8, "256"},
      {[](const NDArray& x) { return pow(x, -1); }, u8, "-1"},
      {[](const NDArray& x) { return x + int64_t{3000000000}; }, i32, "3000000000"},
      {[](const NDArray& x) { return x - ~uint64_t{0}; }, i64, "18446744073709551615"},
      {[](const NDArray& x) { return maximum(x, 256); }, u8, "256"},
      {[](const NDArray& x) { return minimum(x, -1); }, u8, "-1"},
      {[](const NDArray& x) { return clamp(x, 300, 400); }, u8, "300"},
      {[](const NDArray& x) { return clamp(x, -5, -1); }, u8, "-1"},
      {[](const NDArray& x) { return clamp(x, zeros_like(x), -1); }, u8, "-1"},
      {[](const NDArray& x) { return where(x, x, 256); }, u8, "256"},
      {[](const NDArray& x) { return where(x, -1, x); }, u8, "-1"},
      {[](const NDArray& x) { return where(x, 1e39, 1); }, u8, "1e+39"},
      {[](const NDArray& x) { return masked_fill(x, x != 0, 256); }, u8, "256"},
      {[](const NDArray& x) { return masked_fill(x, x != 0, 1e5); }, f16, "100000"},
      {[](const NDArray& x) {
         return pad(x, {1, 1}, PadMode::constant, 256);
       },
       u8, "256"},
      {[](const NDArray& x) { return clamp(x, zeros_like(x) - 1, 300); }, i8, nullptr},
      {[](const NDArray& x) { return clamp(x, -1, zeros_like(x)); }, u8, nullptr},
      {[](const NDArray& x) { return clamp(x, 300, zeros_like(x)); }, u8, "300"},
      {[](const NDArray& x) { return gcd(x, 300); }, u8, "300"},
      {[](const NDArray& x) { return lcm(-1, x); }, u8, "-1"},
      {[](const NDArray& x) { return x.clone() += 300; }, u8, "300"},
      {[](const NDArray& x) { return x.clone() <<= -1; }, u8, "-1"},
  };
  for (const Case& c : cases) {
    const NDArray x = ones({3}, c.dtype);
    if (c.number == nullptr) {  // a limit that limits nothing
      EXPECT_EQ(c.dtype, c.f(x).dtype());
      continue;
    }
    const std::string text = error_of<InvalidArgument>([&] { c.f(x); });
    EXPECT_TRUE(contains(text, std::string("got ") + c.number)) << text;
    EXPECT_TRUE(
        contains(text, to_string(c.dtype == u8 && c.number[0] == '1' && c.number[1] == 'e' ? f32 : c.dtype)))
        << text;
  }
  EXPECT_THROW(randint(0, 257, {3}, u8), InvalidArgument);
  EXPECT_THROW(randint(-1, 3, {3}, u8), InvalidArgument);
  // Assignments to a view that is chosen by indices check the number too.
  NDArray x = zeros({4}, u8);
  const NDArray index = array<int64_t>({0, 2});
  EXPECT_THROW(x[index] = 300, InvalidArgument);
  EXPECT_THROW(x[x == 0] = -1, InvalidArgument);
  EXPECT_THROW((x[{Slice{1, 3}}] += 256), InvalidArgument);
  EXPECT_EQ((test::Values{0, 0, 0, 0}), test::values(x));
}

TEST(NumberOperand, ThatLimitsNothingLeavesTheElements) {
  const NDArray u = array<uint8_t>({0, 1, 200, 255});
  const test::Values same = test::values(u);
  for (const NDArray& y : {clamp(u, 0, 256), clamp(u, -1, 1000), clip(u, -5, 3000), minimum(u, 256),
                           fmin(u, 300), maximum(u, -1), fmax(u, -1), clamp_min(u, -1), clamp_max(u, 256),
                           clamp(u, zeros_like(u), 256), clamp(u, -1, full_like(u, 255))}) {
    EXPECT_EQ(u8, y.dtype());
    EXPECT_EQ(same, test::values(y));
  }
  EXPECT_EQ((test::Values{10, 10, 200, 255}), test::values(clamp(u, 10, 256)));
  // The number is compared in the type of the result, not in that of the first operand.
  const NDArray low = array<int32_t>({280, 0, 0, 1000});
  EXPECT_EQ((test::Values{280, 1, 200, 300}), test::values(clamp(u, low, 300)));
  EXPECT_EQ(i32, clamp(u, low, 300).dtype());
  EXPECT_EQ(int64_t{kMost64}, clamp(full({}, kMost64, i64), 0, ~uint64_t{0}).item<int64_t>());
  EXPECT_EQ(bool_, clamp(full({2}, true, bool_), false, true).dtype());
  EXPECT_EQ((test::Values{0, 0}), test::values(clamp(array(std::vector<bool>{false, true}), false, false)));
}

TEST(NumberOperand, PromotionIsThatOfWeakNumbers) {
  const NDArray u = ones({2}, u8), h = ones({2}, f16), b = full({2}, true, bool_);
  EXPECT_EQ(u8, (u + 1).dtype());
  EXPECT_EQ(f32, (u + 1.).dtype());
  EXPECT_EQ(f16, (h * 1e-3).dtype());
  EXPECT_EQ(i64, (b + 1).dtype());
  EXPECT_EQ(bool_, (b | true).dtype());
  EXPECT_EQ(f32, (u / 2).dtype());
  EXPECT_EQ((test::Values{3, 3}), test::values(b + 2));
  // With f16 arrays the number has the type of computation, so 100000 does not become infinity.
  EXPECT_NEAR(100, (full({}, 1e-3, f16) * 1e5).item<double>(), 0.1);
  EXPECT_EQ((test::Values{test::kInfinity, test::kInfinity}), test::values(h * 1e39));
}

TEST(NumberOperand, BoolInPlaceOfIntegersIsRefused) {
  NDArray b = full({2}, true, bool_);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { b += 1; }), "bool"));
  b |= false;
  EXPECT_EQ((test::Values{1, 1}), test::values(b));
}

class NumberModes : public test::EngineTest {
 protected:
  EngineScope scope_{e_};
};
INSTANTIATE_TEST_SUITE_P(Modes, NumberModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(NumberModes, ViewsDevicesAndSegmentsAgree) {
  for (const Context context : {cpu(), virt(0)}) {
    for (const int64_t rows : {int64_t{3}, int64_t{2000}}) {
      NDArray x = arange(rows * 4).to(f32).reshape({rows, 4}).to(context);
      const test::Values start = test::values(x);
      const auto program = [&] {
        x.transpose() *= 2.f;
        x[{colon, Slice{0, {}, 2}}] += 1;
        x[1] = 3 - x[0];
        x[{0, 0}] = 100;
      };
      Segment segment = e_.record(program);
      segment.replay();
      const test::Values replayed = test::values(x);
      test::Values want = start;
      for (size_t i = 0; i < want.size(); ++i) want[i] = want[i] * 2 + (i % 2 == 0 ? 1 : 0);
      for (size_t i = 0; i < 4; ++i) want[4 + i] = 3 - want[i];
      want[0] = 100;
      EXPECT_EQ(want, replayed);
      EXPECT_EQ((test::Values{5, 5, 5, 5}), test::values(zeros({1}, f32, context).broadcast_to({4}) + 5.f));
    }
  }
}

TEST_P(NumberModes, AnInfinityAmongTheNumbersIsNotReportedAsMade) {
  struct Checked {
    Checked() { set_check_numerics(true); }
    ~Checked() { set_check_numerics(false); }
  } checked;
  const NDArray x = array({1.f, 2.f}), mask = x > 1;
  EXPECT_EQ((test::Values{1, -test::kInfinity}), test::values(masked_fill(x, mask, -test::kInfinity)));
  EXPECT_EQ((test::Values{-test::kInfinity, 2}), test::values(where(mask, x, -test::kInfinity)));
  EXPECT_EQ((test::Values{test::kInfinity, test::kInfinity}), test::values(x + test::kInfinity));
  EXPECT_EQ((test::Values{test::kInfinity, 1, 2}),
            test::values(pad(x, {1, 0}, PadMode::constant, test::kInfinity)));
  const NDArray made = x * 1e38f * 10;
  EXPECT_THROW(made.wait(), NumericError);
  EXPECT_THROW(e_.wait_all(), NumericError);
}

// No array is made of the number, so the operation is the only one.
TEST(NumberOperand, IsNoOperationOfItsOwn) {
  Engine engine;
  const EngineScope scope(engine);
  const NDArray x = ones({8}, f32, virt(0)), mask = x > 0, whole = ones({8}, i64, virt(0));
  NDArray y = ones({8}, f32, virt(0));
  x.wait();
  const auto operations = [&](const auto& f) {
    engine.wait_all();
    const uint64_t before = engine.stats().pushed;
    const NDArray kept = f();
    const uint64_t pushed = engine.stats().pushed - before;
    return pushed;
  };
  EXPECT_EQ(1u, operations([&] { return x + 1; }));
  EXPECT_EQ(1u, operations([&] { return 1 - x; }));
  EXPECT_EQ(1u, operations([&] { return x < 2; }));
  EXPECT_EQ(1u, operations([&] { return clamp(x, 0, 1); }));
  EXPECT_EQ(1u, operations([&] { return clamp(x, y, 1); }));
  EXPECT_EQ(1u, operations([&] { return clamp(x, 0.5, y); }));
  EXPECT_EQ(1u, operations([&] { return clamp_min(x, y); }));
  EXPECT_EQ(1u, operations([&] { return xlogy(x, 2); }));
  EXPECT_EQ(1u, operations([&] { return xlogy(2, x); }));
  EXPECT_EQ(1u, operations([&] { return gcd(whole, 6); }));
  EXPECT_EQ(1u, operations([&] { return lcm(6, whole); }));
  EXPECT_EQ(6u, operations([&] { return isclose(x, 2); })) << "as many as it has steps";
  EXPECT_EQ(1u, operations([&] { return where(mask, x, 0); }));
  EXPECT_EQ(1u, operations([&] { return where(mask, 1, 0); }));
  EXPECT_EQ(1u, operations([&] { return masked_fill(x, mask, 0); }));
  EXPECT_EQ(1u, operations([&] { return pow(x, 2); }));
  EXPECT_EQ(1u, operations([&] { return y += 1; }));
  EXPECT_EQ(1u, operations([&] { return y[{Slice{1, 3}}] *= 2.f; }));
}

TEST(NumberOperand, TwoNumbersAreNoOperands) {
  const std::string text = error_of<InvalidArgument>([] { add(1, 2); });
  EXPECT_TRUE(contains(text, "[add] expected an array among the operands, got two numbers")) << text;
}

// Powers

/// Returns the distance in units in the last place of T.
template <class T>
double units(T got, long double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : test::kInfinity;
  if (static_cast<T>(want) == got) return 0;
  const T near = static_cast<T>(want);
  const T unit = std::nextafter(std::fabs(near), std::numeric_limits<T>::infinity()) - std::fabs(near);
  return static_cast<double>(std::fabs(got - want) / unit);
}

template <class T>
void check_powers() {
  std::vector<T> bases;
  uint64_t state = 7;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const T mantissa = 1 + static_cast<T>(state >> 40) / static_cast<T>(uint64_t{1} << 24);
    const int exponent =
        static_cast<int>((state >> 20) % (sizeof(T) == 4 ? 270 : 2080)) - (sizeof(T) == 4 ? 140 : 1060);
    bases.push_back(std::ldexp(i % 2 == 0 ? mantissa : -mantissa, i % 3 == 0 ? exponent : exponent / 8));
  }
  for (const double x : {0., -0., 1., -1., test::kInfinity, -test::kInfinity, test::kNan})
    bases.push_back(static_cast<T>(x));
  const NDArray x = array(bases);
  for (const double exponent : {0., 0.5, 1., 1.5, 2., 3., 4., -0.5, -1., -2.}) {
    const std::vector<T> got = pow(x, exponent).template to_vector<T>();
    for (size_t i = 0; i < bases.size(); ++i) {
      const long double want =
          std::pow(static_cast<long double>(bases[i]), static_cast<long double>(exponent));
      ASSERT_LE(units(got[i], want), 2) << bases[i] << " to the power of " << exponent << " gave " << got[i];
      if (static_cast<T>(want) == 0) {
        ASSERT_EQ(std::signbit(want), std::signbit(got[i])) << bases[i] << ' ' << exponent;
      }
    }
  }
}

TEST(NumberPower, OfFloatsIsWithinTwoUnitsForExponentsThatMultiply) {
  check_powers<float>();
  check_powers<double>();
}

TEST(NumberPower, OfIntegersIsTheProduct) {
  for (const DType dtype : {i8, u8, i32, i64}) {
    const NDArray x = array<int64_t>({-7, -1, 0, 1, 2, 3, 11, 100}).to(dtype);
    NDArray product = ones_like(x);
    for (int exponent = 0; exponent < 7; ++exponent) {
      EXPECT_EQ(test::values(product), test::values(pow(x, exponent))) << dtype << ' ' << exponent;
      product = product * x;
    }
  }
}

// Reductions whose parameters are numbers.

TEST(NumberMean, OfLargeIntegersDoesNotWrap) {
  // Nanoseconds since 1970: the sum of ten exceeds an i64.
  const int64_t now = 1'700'000'000'000'000'000;
  std::vector<int64_t> stamps;
  for (int i = 0; i < 10; ++i) stamps.push_back(now + i * 1'000'000);
  const NDArray x = array(stamps);
  EXPECT_EQ(static_cast<double>(now) + 4.5e6, mean(x, {}, false, f64).item<double>());
  EXPECT_NEAR(1.7e18, mean(x).item<float>(), 2e11);
  EXPECT_NEAR(1.7e18, mean(x.reshape({5, 2}), 0).to(f64)[0].item<double>(), 2e11);
  EXPECT_NEAR(1.7e18, mean(x.reshape({5, 2}), 1).to(f64)[4].item<double>(), 2e11);
  EXPECT_NEAR(8.25e12, var(x, {}, 0).item<double>(), 8.25e12 * 1e-3);
  EXPECT_NEAR(std::sqrt(8.25e12), stddev(x, {}, 0).item<double>(), 3e3);
  EXPECT_EQ(static_cast<double>(INT32_MAX),
            mean(full({1000}, INT32_MAX, i32), {}, false, f64).item<double>());
  EXPECT_EQ(2.5, mean(array<int32_t>({2, 3}), {}, false, f16).item<double>()) << "not of rounded elements";
}

}  // namespace
}  // namespace mx
