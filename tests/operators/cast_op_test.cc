#include "operators/cast.h"

#include <algorithm>
#include <cmath>

#include "tests/operators/oracle.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::Values;

struct Range {
  double low, high;
};
Range range_of(DType type) {
  if (type == i8) return {-128, 127};
  if (type == u8) return {0, 255};
  if (type == i32) return {-2147483648.0, 2147483647.0};
  return {-0x1p63, 0x1p63};
}

// Returns the nearest number with `bits` bits after the leading one; ties go to even.
double rounded(double x, int bits) {
  if (x == 0 || !std::isfinite(x)) return x;
  const double unit = std::ldexp(1.0, std::ilogb(x) - bits);
  return std::nearbyint(x / unit) * unit;
}

double expected(double x, DType from, DType to) {
  if (to == bool_) return x != 0;
  if (to == f16) return rounded(x, 10);  // no sample is outside the range of f16
  if (to == bf16) return rounded(x, 7);
  if (to == f32) return rounded(x, 23);
  if (to == f64) return x;
  if (std::isnan(x)) return 0;
  if (!is_floating(from)) return test::wrapped(x, to);
  const Range range = range_of(to);
  return std::clamp(std::trunc(x), range.low, range.high);
}

TEST(CastOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("cast", [](const Operator& op, const Sample& s) {
    const NDArray y = call(op, s.attrs, s.inputs)[0];
    ASSERT_EQ(s.attrs.get<CastAttrs>().dtype, y.dtype());
    Values want;
    for (const double x : test::values(s.inputs[0]))
      want.push_back(expected(x, s.inputs[0].dtype(), y.dtype()));
    EXPECT_EQ(want, test::values(y)) << s.label << " of " << s.inputs[0].dtype();
  });
}

TEST(CastOp, GivesWhatTheMethodGives) {
  const NDArray x = array({-1e30, -300.7, -0.5, 0., 0.9, 254.5, 1e5, 1e300, std::nan("")});
  for (const DType dtype : kAllDTypes) test::expect_values(test::values(x.to(dtype)), cast(x, dtype), "cast");
  EXPECT_EQ((Values{-128, -128, 0, 0, 0, 127, 127, 127, 0}), test::values(cast(x, i8)));
  EXPECT_NE(cast(x, f64).impl().storage.get(), x.impl().storage.get()) << "a new array";
}

}  // namespace
}  // namespace mx
