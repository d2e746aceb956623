// Exceptions of the program's own functions: which reach the program unchanged, and which become errors of
// the library, as docs/errors.md says.
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/autograd/checkpoint.h"
#include "kvstore/kvstore.h"
#include "nn/data/loader.h"
#include "nn/data/stream.h"
#include "nn/linear.h"
#include "operators/custom.h"
#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

/// An exception that the library does not know.
struct OfTheProgram : std::runtime_error {
  OfTheProgram() : runtime_error("of the program") {}
};

/// Fails in infer() or in forward().
struct FailingOp : CustomOp {
  bool at_once = false;
  static Operator record() { return {.kernel = {"failing"}, .doc = "Fails.", .inputs = {"x"}}; }
  template <class V>
  static void fields(V&& v) {
    v("at_once", &FailingOp::at_once, "fails in infer()");
  }
  void infer(InferContext& c) const {
    if (at_once) throw OfTheProgram();
    c.output(c.shape(0), c.dtype(0));
  }
  void forward(const KernelArgs&) const { throw OfTheProgram(); }
};

struct FailingLayer : nn::ModuleOf<FailingLayer> {
  NDArray forward(const NDArray&) override { throw OfTheProgram(); }
};

data::SourceHandle numbers_source() {
  return data::function_source(3, [](int64_t i) { return data::Sample{data::host_scalar(i)}; });
}

TEST(CallbackErrors, OfOperationsBecomeOperationErrorsWithTheirPlace) {
  const auto expect_place = [](const auto& f, const char* part) {
    const std::string message = error_of<OperationError>(f);
    EXPECT_TRUE(contains(message, "of the program") && contains(message, part)) << message;
    EXPECT_TRUE(contains(message, "callback_errors_test.cc:")) << message;
  };
  const NDArray y = custom<FailingOp>({ones({2})});
  expect_place([&] { y.wait(); }, "[failing]");
  expect_place([&] { custom<FailingOp>({ones({2})}, {{"at_once", true}}); }, "(inputs: f32 (2,); called at");
  const data::FunctionDataset broken(3, {{.shape = {2}}}, [](int64_t, auto) { throw OfTheProgram(); });
  data::Loader loader(broken);
  const NDArray batch = (*loader.begin())[0];
  expect_place([&] { batch.wait(); }, "(in sample 0 of a FunctionDataset)");
}

TEST(CallbackErrors, OfSamplesNameTheSample) {
  const auto fail = [](data::Sample&, data::SampleRandom&) { throw OfTheProgram(); };
  for (const data::SampleDataset& set :
       {data::SampleDataset(data::function_source(3, [](int64_t) -> data::Sample { throw OfTheProgram(); })),
        data::SampleDataset(numbers_source(), {.transform = fail})}) {
    data::Loader loader(set);
    EXPECT_TRUE(contains(error_of<OperationError>([&] { loader.begin(); }),
                         "of the program (in sample 0 of a SampleDataset)"));
  }
}

TEST(CallbackErrors, OfOtherFunctionsReachTheCallUnchanged) {
  const data::SampleDataset collated(
      numbers_source(), {.collate = [](std::vector<data::Sample>) -> data::Sample { throw OfTheProgram(); }});
  data::Loader collating(collated);
  error_of<OfTheProgram>([&] { collating.begin(); });
  data::Loader transforming(
      data::ArrayDataset({ones({3, 2})}),
      {.batch_transform = [](std::vector<NDArray>, const data::SampleIds&) -> std::vector<NDArray> {
        throw OfTheProgram();
      }});
  error_of<OfTheProgram>([&] { transforming.begin(); });
  data::StreamLoader stream(
      data::iterable([](int64_t) { return [](data::Sample&) -> bool { throw OfTheProgram(); }; }));
  error_of<OfTheProgram>([&] { stream.begin(); });

  error_of<OfTheProgram>([] { FailingLayer()(ones({2})); });
  nn::Linear hooked(2, 2);
  hooked.register_forward_hook([](const auto&...) { throw OfTheProgram(); });
  error_of<OfTheProgram>([&] { hooked(ones({1, 2})); });
  NDArray x = ones({2}).requires_grad_();
  x.add_grad_hook([](const NDArray&) -> NDArray { throw OfTheProgram(); });
  error_of<OfTheProgram>([&] { sum(x * 2).backward(); });
  NDArray z = ones({2}).requires_grad_();
  int calls = 0;
  const NDArray y = checkpoint(
      [&](const NDArray& a) {
        if (calls++ > 0) throw OfTheProgram();
        return a * 2;
      },
      z);
  error_of<OfTheProgram>([&] { sum(y).backward(); });
  const auto store = KVStore::create("local");
  store->init("w", ones({2}));
  store->set_updater([](const std::string&, const NDArray&, NDArray&) { throw OfTheProgram(); });
  error_of<OfTheProgram>([&] { store->push("w", ones({2})); });
}

}  // namespace
}  // namespace mx
