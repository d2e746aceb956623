#include "operators/softmax.h"

#include "operators/elementwise_binary.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::Values;

/// Calls f(row) for the elements along the axis, in doubles; f modifies them. Returns the results.
Values by_row(const NDArray& a, const NDArray& b, int64_t axis,
              const std::function<void(Values& a, const Values& b)>& f) {
  const Shape shape = a.rank() == 0 ? Shape{1} : a.shape();
  const int d = normalize_axis(axis, shape.rank(), "test");
  const int64_t n = shape[d], stride = contiguous_strides(shape)[d];
  Values x = test::values(a);
  const Values y = b.defined() ? test::values(b) : x;
  for (int64_t i = 0; i < static_cast<int64_t>(x.size()); ++i) {
    if (i / stride % n != 0) continue;
    Values row, other;
    for (int64_t k = 0; k < n; ++k) {
      row.push_back(x[static_cast<size_t>(i + k * stride)]);
      other.push_back(y[static_cast<size_t>(i + k * stride)]);
    }
    f(row, other);
    for (int64_t k = 0; k < n; ++k) x[static_cast<size_t>(i + k * stride)] = row[static_cast<size_t>(k)];
  }
  return x;
}

void softmax_row(Values& x, const Values&) {
  double sum = 0;
  for (double v : x) sum += std::exp(v);
  for (double& v : x) v = std::exp(v) / sum;
}
void log_softmax_row(Values& x, const Values& y) {
  softmax_row(x, y);
  for (double& v : x) v = std::log(v);
}
void softmax_backward_row(Values& dy, const Values& y) {
  double dot = 0;
  for (size_t i = 0; i < y.size(); ++i) dot += dy[i] * y[i];
  for (size_t i = 0; i < y.size(); ++i) dy[i] = y[i] * (dy[i] - dot);
}
void log_softmax_backward_row(Values& dy, const Values& y) {
  double sum = 0;
  for (double v : dy) sum += v;
  for (size_t i = 0; i < y.size(); ++i) dy[i] -= std::exp(y[i]) * sum;
}

TEST(SoftmaxOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  struct RowCase {
    const char* name;
    void (*row)(Values&, const Values&);
  };
  for (const RowCase& test : {RowCase{"softmax", softmax_row}, RowCase{"log_softmax", log_softmax_row},
                              RowCase{"softmax_backward", softmax_backward_row},
                              RowCase{"log_softmax_backward", log_softmax_backward_row}})
    test::each_sample(test.name, [&](const Operator& op, const Sample& s) {
      const NDArray other = s.inputs.size() > 1 ? s.inputs[1] : NDArray();
      test::expect_values(by_row(s.inputs[0], other, s.attrs.get<SoftmaxAttrs>().axis, test.row),
                          call(op, s.attrs, s.inputs)[0], s.label, 4);
    });
}

TEST(SoftmaxOp, TakesEveryLayoutAndAxis) {
  const NDArray x = test::numbers({3, 4, 5}, f32);
  for (const NDArray& view : test::layouts(x))
    for (int64_t axis = -3; axis < 3; ++axis) {
      test::expect_values(by_row(x, {}, axis, softmax_row), softmax(view, axis), "softmax");
      test::expect_values(by_row(x, {}, axis, log_softmax_row), log_softmax(view, axis), "log_softmax");
    }
}

TEST(SoftmaxOp, HugeValuesAndRowsThatAreNoNumbers) {
  test::expect_values({0, 0.5, 0.5}, softmax(array({-1e30f, 1e30f, 1e30f})), "huge");
  test::expect_values({0, 1}, softmax(array({-double(kInfinity), 3.})), "-inf");
  test::expect_values({kNan, kNan}, softmax(array({kNan, 3.})), "NaN");
  test::expect_values({kNan, kNan}, softmax(array({-double(kInfinity), -double(kInfinity)})), "all -inf");
  test::expect_values({-2e4, 0}, log_softmax(array({-1e4f, 1e4f})), "log");
  EXPECT_EQ((Shape{0, 3}), softmax(zeros({0, 3})).shape());
  EXPECT_EQ((Shape{3, 0}), softmax(zeros({3, 0})).shape());
}

TEST(SoftmaxOp, BackwardMayTakeTheMemoryOfItsInput) {
  NDArray dy = test::numbers({4, 5}, f64, 3);
  const NDArray y = softmax(test::numbers({4, 5}, f64, 4));
  const Values want = by_row(dy, y, -1, softmax_backward_row);
  const NDArray inputs[] = {dy, y};
  call_into(dy, *find_operator("softmax_backward"), SoftmaxAttrs{}, inputs);
  test::expect_values(want, dy, "in place");
}

TEST(SoftmaxOp, ErrorsNameWhatCame) {
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { softmax(zeros({2}, i32)); }),
                       "[softmax] expected floating-point elements, got i32"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { log_softmax(zeros({2}), 1); }), "expected an axis"));
  const std::string text = error_of<InvalidArgument>([] { softmax_backward(zeros({2}), zeros({3})); });
  EXPECT_TRUE(contains(text, "(2,)") && contains(text, "(3,)")) << text;
}

}  // namespace
}  // namespace mx
