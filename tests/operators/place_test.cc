// A failure that is thrown from a wait names the source location of the user's call, not one inside the
// library. This also holds for functions composed of several calls and for operators of the language.
#include <gtest/gtest.h>

#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/detail/place.h"
#include "operators/operators.h"
#include "operators/parameter.h"
#include "tests/support/errors.h"
#include "tests/support/shortage.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

constexpr int64_t kRoomElements = 1 << 20;
constexpr size_t kRoom = 4 << 20;  // as f32

class CallPlace : public ::testing::Test {
 protected:
  void SetUp() override {
    // Errors of earlier tests of the process that no wait has reported.
    try {
      wait_all();
    } catch (const Error&) {
    }
  }
  NDArray x_ = ones({3}), bad_ = array<int64_t>({0, 7}), good_ = array<int64_t>({0, 1});

  template <class E>
  static void expect_line(const NDArray& failed, int line) {
    const std::string text = error_of<E>([&] { failed.wait(); });
    EXPECT_TRUE(contains(text, "tests/operators/place_test.cc:" + std::to_string(line))) << text;
    EXPECT_TRUE(text.find("/operators/") == text.rfind("/operators/")) << text;
    EXPECT_FALSE(contains(text, "/ndarray/")) << text;
    error_of<E>([] { wait_all(); });
  }
  static void expect_here(const NDArray& failed, int line) { expect_line<InvalidArgument>(failed, line); }
};

TEST_F(CallPlace, OfReadingAtIndices) {
  const NDArray read = x_[bad_];
  expect_here(read, __LINE__ - 1);
  const View later = x_[bad_];
  const int line = __LINE__ - 1;
  expect_here(later, line);
  const NDArray several = ones({3, 3})[{bad_, Slice{0, 2}}];
  expect_here(several, __LINE__ - 1);
  const NDArray beside = ones({9, 3})[{1, bad_.to(i32)}];
  expect_here(beside, __LINE__ - 1);
}

TEST_F(CallPlace, OfWritingAtIndices) {
  const NDArray a = ones({3}), b = ones({3}), c = ones({3}), d = ones({3}), e = ones({3}), f = ones({3});
  a[bad_] = 2;
  expect_here(a, __LINE__ - 1);
  b[bad_] = array({2.f, 3.f});
  expect_here(b, __LINE__ - 1);
  c[{bad_}] = x_[good_];
  expect_here(c, __LINE__ - 1);
  d[bad_] += 1;
  expect_here(d, __LINE__ - 1);
  e[{bad_}] = ones({2}, i32);
  expect_here(e, __LINE__ - 1);
  f[bad_] = x_[good_];
  expect_here(f, __LINE__ - 1);
}

TEST_F(CallPlace, OfFunctionsThatChangeTheirArgument) {
  NDArray a = ones({3}), b = ones({3}), c = ones({3}), d = ones({3}), e = ones({3});
  scatter_(a, bad_, ones({2}), 0);
  expect_here(a, __LINE__ - 1);
  index_add_(b, bad_, ones({2}, i32));
  expect_here(b, __LINE__ - 1);
  index_copy_(c, bad_, ones({2}));
  expect_here(c, __LINE__ - 1);
  put_nd_(d, std::vector<NDArray>{bad_}, {0}, ones({2}));
  expect_here(d, __LINE__ - 1);
  masked_scatter_(e, e == 1, ones({2}));
  expect_here(e, __LINE__ - 1);
}

// Runs `call` repeatedly with room for 0, 1, 2, ... results, until it succeeds, so that each of its steps
// fails once.
template <class Call>
void expect_each_step_named(const Call& call, int line) {
  bool well = false;
  int failures = 0;
  for (size_t room = 0; !well && room < 12; ++room) {
    const test::Shortage shortage(room * kRoom);
    NDArray made = call();
    try {
      made.wait();
      well = true;
    } catch (const OutOfMemory& e) {
      ++failures;
      const std::string text = e.what();
      EXPECT_TRUE(contains(text, "tests/operators/place_test.cc:" + std::to_string(line))) << text;
      EXPECT_FALSE(contains(text, "generator.cc")) << text;
      error_of<OutOfMemory>([] { wait_all(); });
    }
    made = NDArray();
    wait_all();
  }
  EXPECT_TRUE(well);
  EXPECT_GT(failures, 0);
}

TEST_F(CallPlace, OfRandomNumbers) {
  const Context v = virt(0);
  const NDArray half = full({kRoomElements}, 0.5, f32, v);
  half.wait();
  const Shape s{kRoomElements};
  // Each call uses a new generator, because one whose state could not be advanced remains poisoned.
  std::vector<Generator> made;
  for (int i = 0; i < 64; ++i) made.emplace_back(1, v);
  for (Generator& g : made) g.state().wait();
  size_t next = 0;
  const auto g = [&]() -> Generator& { return made[next++ % made.size()]; };
  expect_each_step_named([&] { return g().rand(s); }, __LINE__);
  expect_each_step_named([&] { return g().uniform(0, 2, s); }, __LINE__);
  expect_each_step_named([&] { return g().randn(s); }, __LINE__);
  expect_each_step_named([&] { return g().normal(0, 2, s); }, __LINE__);
  expect_each_step_named([&] { return g().randint(0, 2, s); }, __LINE__);
  expect_each_step_named([&] { return g().bernoulli(0.5, s); }, __LINE__);
  expect_each_step_named([&] { return g().bernoulli(half); }, __LINE__);
  expect_each_step_named([&] { return g().exponential(1, s); }, __LINE__);
  expect_each_step_named([&] { return g().gamma(1, 1, s); }, __LINE__);
  expect_each_step_named([&] { return g().poisson(1, s); }, __LINE__);
  expect_each_step_named([&] { return g().permutation(kRoomElements); }, __LINE__);
  expect_each_step_named([&] { return g().shuffle(half); }, __LINE__);
  expect_each_step_named([&] { return rand(s, f32, v); }, __LINE__);
  expect_each_step_named([&] { return randn(s, f32, v); }, __LINE__);
  expect_each_step_named([&] { return dropout(half, 0.5); }, __LINE__);
}

TEST_F(CallPlace, OfLosses) {
  const NDArray x = full({kRoomElements, 1}, 0.5, f32, virt(0));
  const NDArray t = full({kRoomElements, 1}, 1, f32, virt(0));
  x.wait();
  t.wait();
  expect_each_step_named([&] { return mse_loss(x, t, "none"); }, __LINE__);
  expect_each_step_named([&] { return l1_loss(x, t, "none"); }, __LINE__);
  expect_each_step_named([&] { return bce_loss(x, t, "none"); }, __LINE__);
  expect_each_step_named([&] { return bce_with_logits(x, t, "none"); }, __LINE__);
  expect_each_step_named([&] { return bce_with_logits(x, t, "none", x); }, __LINE__);
  expect_each_step_named([&] { return huber_loss(x, t, 1, "none"); }, __LINE__);
  expect_each_step_named([&] { return smooth_l1_loss(x, t, 1, "none"); }, __LINE__);
  expect_each_step_named([&] { return kl_div(x, t, "none"); }, __LINE__);
  expect_each_step_named([&] { return kl_div(x, t, "none", true); }, __LINE__);
  expect_each_step_named([&] { return hinge_loss(x, t, 1, "none"); }, __LINE__);
  expect_each_step_named([&] { return hinge_embedding_loss(x, t, 1, "none"); }, __LINE__);
}

// Expects that the call throws, and that its error ends with this line.
void refused(int line, const std::function<void()>& call) {
  const std::string text = error_of<InvalidArgument>(call);
  EXPECT_TRUE(text.ends_with("place_test.cc:" + std::to_string(line) + ")")) << line << text;
  EXPECT_EQ(text.find("called at"), text.rfind("called at")) << text;
}

// Errors that are thrown by the call itself. scripts/check_places.py finds functions that forget the line.
TEST_F(CallPlace, OfCallsThatAreRefused) {
  const NDArray x = ones({2, 3}), none;
  refused(__LINE__, [&] { x[{0, 1, 2}]; });
  refused(__LINE__, [&] { x[array({true, false, true})]; });
  refused(__LINE__, [&] { x.slice(2, colon); });
  refused(__LINE__, [&] { x.select(0, 9); });
  refused(__LINE__, [&] { x.reshape({4}); });
  refused(__LINE__, [&] { x.transpose({0, 0}); });
  refused(__LINE__, [&] { x.swap_axes(0, 3); });
  refused(__LINE__, [&] { x.move_axis(0, 3); });
  refused(__LINE__, [&] { x.expand_dims(4); });
  refused(__LINE__, [&] { x.squeeze(0); });
  refused(__LINE__, [&] { x.broadcast_to({5}); });
  refused(__LINE__, [&] { x.diagonal(0, 1, 1); });
  refused(__LINE__, [&] { x.as_strided({9}, {1}, 0); });
  refused(__LINE__, [&] { empty({-2}); });
  refused(__LINE__, [&] { zeros({-1}); });
  refused(__LINE__, [&] { full({2}, 300, u8); });
  refused(__LINE__, [&] { NDArray(zeros({2}, u8)).fill_(300); });
  refused(__LINE__, [&] { arange(0, 10, 0); });
  refused(__LINE__, [&] { linspace(0, 1, -1); });
  refused(__LINE__, [&] { eye(-1); });
  refused(__LINE__, [&] { array(std::vector<std::vector<float>>{{1}, {2, 3}}); });
  refused(__LINE__, [&] { array({1.f, 2.f}, {3}); });
  refused(__LINE__, [&] { rand({-1}); });
  refused(__LINE__, [&] { uniform(1, 0, {2}); });
  refused(__LINE__, [&] { normal(0., -1., {2}); });
  refused(__LINE__, [&] { randint(5, 5, {2}); });
  refused(__LINE__, [&] { bernoulli(2., {2}); });
  refused(__LINE__, [&] { permutation(-1); });
  refused(__LINE__, [&] { choice(0, {2}); });
  refused(__LINE__, [&] { binomial(-1, 0.5, {2}); });
  refused(__LINE__, [&] { shuffle(scalar_array(1, f32)); });
  refused(__LINE__, [&] { split(x, 2, 1); });
  refused(__LINE__, [&] { chunk(x, 0, 1); });
  refused(__LINE__, [&] { array_split(x, 0, 1); });
  refused(__LINE__, [&] { repeat(x, std::vector<int64_t>{1}, 0); });
  refused(__LINE__, [&] { diff(x, -1); });
  refused(__LINE__, [&] { stack({x, ones({3})}); });
  refused(__LINE__, [&] { einsum("ij,jk", x, x); });
  refused(__LINE__, [&] { quantile(x, 2.); });
  refused(__LINE__, [&] { trace(x[0]); });
  refused(__LINE__, [&] { dropout(x, 2.); });
  refused(__LINE__, [&] { cdist(x, ones({2, 5})); });
  refused(__LINE__, [&] { cross(x, ones({2, 2})); });
  refused(__LINE__, [&] { logit(x, 2.); });
  refused(__LINE__, [&] { bincount(x); });
  refused(__LINE__, [&] { cov(ones({2, 2, 2})); });
  refused(__LINE__, [&] { layer_norm(x, {4}); });
  refused(__LINE__, [&] { digitize(x, x); });
  refused(__LINE__, [&] { lexsort(std::vector<NDArray>{}); });
  refused(__LINE__, [&] { interpolate(ones({1, 1, 2, 2}), {.mode = "cubic"}); });
  refused(__LINE__, [&] { SparseCSR(bad_, bad_, ones({3}), {3, 3}); });
  refused(__LINE__, [&] { SparseCSR::from_coo(bad_, bad_, ones({2}), {3, 3}); });
  refused(__LINE__, [&] { matmul(SparseCSR::from_dense(ones({3, 2})), ones({3, 2})); });
  refused(__LINE__, [&] { NDArray(ones({2})) += x; });
  refused(__LINE__, [&] { NDArray(ones({2})).copy_from(x); });
  refused(__LINE__, [&] { none + 1; });
  refused(__LINE__, [&] { concat({x, none}); });
}

TEST_F(CallPlace, OfCallsThatAreRefusedByFunctionsOfOperators) {
  const NDArray x = ones({2, 3}), none, image = ones({1, 1, 4, 4});
  refused(__LINE__, [&] { rms_norm(x, {4}); });
  refused(__LINE__, [&] { instance_norm(ones({2})); });
  refused(__LINE__, [&] { local_response_norm(x, 0); });
  refused(__LINE__, [&] { max_unpool(x, x, 2); });
  refused(__LINE__, [&] { lp_pool(image, 0, {.kernel = 2}); });
  refused(__LINE__, [&] { lp_pool(ones({2}), 2, {.kernel = 2}); });
  refused(__LINE__, [&] { ctc_loss(x, x, x, x); });
  refused(__LINE__, [&] { nll_loss(x, bad_, {.reduction = "most"}); });
  refused(__LINE__, [&] { attention_with_dropout(x, x, x, 2); });
  refused(__LINE__, [&] { roll(x, {1, 2}, {0}); });
  refused(__LINE__, [&] { masked_fill(x, x, 1); });
  refused(__LINE__, [&] { masked_select(x, x); });
  refused(__LINE__, [&] { take(x, x, 0); });
  refused(__LINE__, [&] { take_along_axis(x, bad_, 5); });
  refused(__LINE__, [&] { histogram(x, 0); });
  refused(__LINE__, [&] { histogram(x, ones({1})); });
  refused(__LINE__, [&] { tensordot(x, x, 1); });
  refused(__LINE__, [&] { tensordot(x, x, {0}, {0, 1}); });
  refused(__LINE__, [&] { inner(x, ones({4})); });
  refused(__LINE__, [&] { kron(x, ones({1, 1, 1, 1, 1, 1, 1})); });
  refused(__LINE__, [&] { outer(x, x); });
  refused(__LINE__, [&] { partition(x, 9); });
  refused(__LINE__, [&] { round(bad_, -19); });
  refused(__LINE__, [&] { average(x, ones({2})); });
  refused(__LINE__, [&] { corrcoef(ones({2, 2, 2})); });
  refused(__LINE__, [&] { isclose(x, x, {.rtol = -1}); });
  refused(__LINE__, [&] { isclose(1, 1); });
  refused(__LINE__, [&] { rnn(x, {}, {}, {.nonlinearity = "sine"}); });
  refused(__LINE__, [&] { segment_sum(x, x); });
  refused(__LINE__, [&] { fft::fft(x, {}, 7); });
  refused(__LINE__, [&] { fft::absolute(x); });
  refused(__LINE__, [&] { fft::fftfreq(0); });
  refused(__LINE__, [&] { linalg::matrix_norm(x, "fro", {0, 5}); });
  refused(__LINE__, [&] { Parameter().copy_from(x); });
  refused(__LINE__, [&] { Parameter().fill_(1); });
}

TEST_F(CallPlace, OfViewsAndItemsThatAreRefused) {
  const NDArray x = ones({2, 3});
  refused(__LINE__, [&] { flip(x, {4}); });
  refused(__LINE__, [&] { rot90(x, 1, {0, 0}); });
  refused(__LINE__, [&] { sliding_window(x, 9); });
  refused(__LINE__, [&] { sliding_window(x, Shape{1}); });
  refused(__LINE__, [&] { unbind(x, 4); });
  refused(__LINE__, [&] { reshape(x, {5}); });
  refused(__LINE__, [&] { transpose(x, {0}); });
  refused(__LINE__, [&] { swap_axes(x, 0, 4); });
  refused(__LINE__, [&] { move_axis(x, 0, 4); });
  refused(__LINE__, [&] { squeeze(x, 0); });
  refused(__LINE__, [&] { expand_dims(x, 4); });
  refused(__LINE__, [&] { broadcast_to(x, {5}); });
  const std::vector<NDArray> pair{x, ones({5})};
  refused(__LINE__, [&] { broadcast_arrays(pair); });
  refused(__LINE__, [&] { meshgrid(pair); });
  refused(__LINE__, [&] { x.item<float>(); });
  refused(__LINE__, [&] { ones({1}).item<int>(); });
  refused(__LINE__, [&] { full({1}, 300, i32).item<uint8_t>(); });
}

// A line in the library would say nothing to the author of the program.
TEST_F(CallPlace, NoLineOfTheLibraryIsNamed) {
  const NDArray x = ones({2, 3});
  const std::string text = error_of<InvalidArgument>([&] { tensordot(x, x, 1); });
  EXPECT_FALSE(contains(text, "/operators/products.cc")) << text;
  const auto here = std::source_location::current();
  EXPECT_TRUE(detail::called_at(here).ends_with("place_test.cc:" + std::to_string(here.line()) + ')'));
  EXPECT_EQ("", detail::called_at({}));
}

TEST_F(CallPlace, AnEmptyHandleIsNamedAsTheOperandThatItIs) {
  const NDArray x = ones({2}), none;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { x + none; }),
                       "[add] expected an array as input 1, b, got an empty"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { exp(none); }),
                       "[exp] expected an array as input 0, x, got an empty"));
}

TEST_F(CallPlace, FunctionsOfRandomNumbersAreNamedAsTheyWereCalled) {
  EXPECT_TRUE(error_of<InvalidArgument>([] { rand({-1}); }).starts_with("[rand] "));
  EXPECT_TRUE(error_of<InvalidArgument>([] { randn({2}, i32); }).starts_with("[randn] "));
  EXPECT_TRUE(error_of<InvalidArgument>([] { zeros({-1}); }).starts_with("[zeros] "));
  EXPECT_TRUE(error_of<InvalidArgument>([] { eye(-1); }).starts_with("[eye] "));
  for (const NDArray& bad : {categorical(array({-1.f}), 2), bernoulli(array({2.f}))}) {
    const std::string text = error_of<InvalidArgument>([&] { bad.wait(); });
    EXPECT_EQ(text.find("] expected"), text.find(']')) << text;
  }
  error_of<InvalidArgument>([] { wait_all(); });
}

}  // namespace
}  // namespace mx
