// Errors of the constructors of data sets, loaders and tokenizers name the line of the program.
#include <gtest/gtest.h>

#include <vector>

#include "nn/data/dataset.h"
#include "nn/data/loader.h"
#include "nn/data/sample_dataset.h"
#include "nn/data/stream.h"
#include "nn/data/tokenizer.h"
#include "tests/support/called_at.h"

namespace mx::data {
namespace {

ArrayDataset four() { return ArrayDataset({zeros({4})}); }

using Wrong = test::WrongCall;

// Each is on one line, the one that its error must name.
// clang-format off
std::vector<Wrong> wrong_calls() {
  return {
      Wrong([] { ArrayDataset({}); }),
      Wrong([] { ArrayDataset({zeros({2}), zeros({3})}); }),
      Wrong([] { ArrayDataset({zeros({2})}, {"a", "b"}); }),
      Wrong([] { FunctionDataset(-1, {{.shape = {1}}}, [](int64_t, auto) {}); }),
      Wrong([] { FunctionDataset(1, {}, [](int64_t, auto) {}); }),
      Wrong([] { Subset(four(), {4}); }),
      Wrong([] { Loader(four(), {.batch_size = 0}); }),
      Wrong([] { Loader(four(), {.batch_size = 5, .drop_last = true}); }),
      Wrong([] { SampleDataset(nullptr); }),
      Wrong([] { StreamLoader(nullptr, {.batch_size = 1}); }),
      Wrong([] { CharTokenizer(""); }),
  };
}
// clang-format on

TEST(ConstructorLine, OfDataSetsLoadersAndTokenizersIsThatOfTheProgram) {
  for (const Wrong& wrong : wrong_calls()) test::expect_named_once(wrong, "constructor_line_test.cc");
}

}  // namespace
}  // namespace mx::data
