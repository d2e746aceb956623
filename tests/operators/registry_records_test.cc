// Properties of the records of all operators, and of their errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "operators/samples/samples.h"
#include "tests/operators/registry_support.h"

namespace mx {
namespace {

using test::contains;
using test::expect_named;
using test::for_each_sample;
using test::outcome;

struct Strange {
  int64_t number = 1;
  template <class V>
  static void fields(V&& v) {
    v("number", &Strange::number, "of no use");
  }
};

// Returns the message of f's error, or "" if there is none.
template <class F>
std::string invalid_argument_of(const F& f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "expected InvalidArgument, got " << typeid(e).name() << ": " << e.what();
    return e.what();
  }
  return "";
}

TEST(Registry, NamesAreFoundAndAreUnique) {
  std::set<std::string> names;
  for (const Operator* op : all_operators()) {
    EXPECT_TRUE(names.insert(op->name()).second) << op->name();
    EXPECT_EQ(op, find_operator(op->name()));
  }
  EXPECT_GT(names.size(), 70u);
  EXPECT_EQ(nullptr, find_operator("no such operator"));
}

// A function runs in the calling thread if the call takes at most about two microseconds; elements of
// costlier functions count more.
TEST(Registry, ElementwiseFunctionsRunDirectlyByWhatTheyCost) {
  const auto direct = [](const char* name) { return find_operator(name)->kernel.direct_work; };
  EXPECT_EQ(4096, direct("add"));
  EXPECT_EQ(4096, direct("exp"));
  for (const char* name : {"lgamma", "pow", "atan2", "logaddexp", "asin", "binary_cross_entropy"}) {
    EXPECT_LE(32, direct(name)) << name;
    EXPECT_GT(2048, direct(name)) << name;
  }
  EXPECT_LT(direct("lgamma"), direct("cbrt"));
  const Operator& gelu = *find_operator("gelu");
  ASSERT_NE(nullptr, gelu.work);
  const auto work = [&](DType type) {
    const NDArray x = ones({10, 10}, type);
    detail::ArrayImpl* const inputs[] = {&x.impl()};
    const Attrs attrs{};
    InferContext c(gelu, inputs, attrs);
    gelu.infer(c);
    return gelu.work(c);
  };
  EXPECT_EQ(100, work(f32));
  EXPECT_LT(500, work(f64)) << "by the C library";
}

TEST(Registry, RecordsAreComplete) {
  for (const Operator* op : all_operators()) {
    SCOPED_TRACE(op->name());
    const std::string doc = op->doc;
    EXPECT_TRUE(!doc.empty() && doc.back() == '.') << "the doc is not a statement: " << doc;
    EXPECT_STRNE("", op->family);
    EXPECT_NE(nullptr, op->infer);
    EXPECT_NE(nullptr, op->kernel.cpu);
    EXPECT_GE(op->kernel.direct_work, 0);
    EXPECT_FALSE(op->outputs.empty());
    for (const char* name : op->inputs) EXPECT_STRNE("", name);
    for (size_t i = 0; i + 1 < op->inputs.size(); ++i)
      EXPECT_FALSE(contains(op->inputs[i], "...")) << "only the last input may stand for many";
    if (op->max_inputs() < 64) {
      EXPECT_EQ(0u, op->in_place >> op->max_inputs()) << "in_place names an input that is not there";
      EXPECT_EQ(0u, op->updates >> op->max_inputs()) << "updates names an input that is not there";
    }
    EXPECT_TRUE(!op->random || op->updates != 0) << "a random operator changes its state";
    const std::set<DType> dtypes(op->dtypes.begin(), op->dtypes.end());
    EXPECT_EQ(op->dtypes.size(), dtypes.size()) << "a type is listed twice";
    if (op->attrs != nullptr) {
      for (const AttrField& field : op->attrs->fields()) {
        EXPECT_FALSE(field.name.empty());
        EXPECT_TRUE(!field.doc.empty() && field.doc.back() != '?') << field.name << ": " << field.doc;
      }
    }
    ASSERT_TRUE(has_samples(*op)) << "no samples";
    const std::vector<Sample> samples = samples_of(*op);
    EXPECT_FALSE(samples.empty());
    std::set<std::string> labels;
    for (const Sample& sample : samples) {
      EXPECT_FALSE(sample.label.empty());
      EXPECT_TRUE(labels.insert(sample.label).second) << "two samples are called " << sample.label;
      EXPECT_GE(sample.inputs.size(), op->min_inputs());
      EXPECT_LE(sample.inputs.size(), op->max_inputs());
      EXPECT_EQ(op->attrs, sample.attrs.type()) << sample.label;
    }
  }
}

TEST(Registry, EveryAttributeIsVariedBySomeSample) {
  for (const Operator* op : all_operators()) {
    if (op->attrs == nullptr || !has_samples(*op)) continue;
    std::map<std::string, std::set<std::string>> values;
    for (const Sample& sample : samples_of(*op))
      for (const auto& [name, value] : sample.attrs.to_map()) values[name].insert(to_string(value));
    for (const AttrField& field : op->attrs->fields())
      EXPECT_GE(values[field.name].size(), 2u) << op->name() << ": all samples have the same " << field.name;
  }
}

TEST(Registry, AttributesSurviveNamesAndValues) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    const AttrMap map = sample.attrs.to_map();
    const Attrs again = Attrs::from_map(op.attrs, map, op.name());
    EXPECT_EQ(map, again.to_map());
    EXPECT_EQ(op.attrs, again.type());
    EXPECT_EQ(outcome(op, sample.attrs, sample.inputs), outcome(op, again, sample.inputs));
    const std::string text = invalid_argument_of([&] {
      Attrs::from_map(op.attrs, {{"no such attribute", int64_t{1}}}, op.name());
    });
    EXPECT_TRUE(contains(text, op.name()) && contains(text, "no such attribute")) << text;
  });
}

TEST(Registry, TheWrongNumberOfInputsThrows) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    std::vector<NDArray> inputs = sample.inputs;
    if (op.max_inputs() != SIZE_MAX) {
      while (inputs.size() <= op.max_inputs()) inputs.push_back(ones({7}));
      expect_named(op, inputs, invalid_argument_of([&] { call(op, sample.attrs, inputs); }));
    }
    if (op.min_inputs() > 0) {
      inputs = sample.inputs;
      inputs.resize(op.min_inputs() - 1);
      expect_named(op, inputs, invalid_argument_of([&] { call(op, sample.attrs, inputs); }));
    }
  });
}

TEST(Registry, ArraysOfTwoDevicesThrow) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    if (sample.inputs.size() < 2) return;
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      std::vector<NDArray> inputs = sample.inputs;
      inputs[i] = inputs[i].to(virt(0));
      const std::string text = invalid_argument_of([&] { call(op, sample.attrs, inputs); });
      expect_named(op, inputs, text);
      EXPECT_TRUE(contains(text, "virt(0)") && contains(text, "cpu(0)")) << text;
      EXPECT_TRUE(contains(text, "registry_records_test.cc:")) << "no place in: " << text;
    }
  });
}

TEST(Registry, AnEmptyHandleThrows) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    for (size_t i = 0; i < sample.inputs.size(); ++i) {
      std::vector<NDArray> inputs = sample.inputs;
      inputs[i] = NDArray();
      EXPECT_TRUE(contains(invalid_argument_of([&] { call(op, sample.attrs, inputs); }), "empty handle"));
    }
  });
}

TEST(Registry, TypesThatAreNotDeclaredThrow) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    if (op.dtypes.empty() || sample.inputs.empty() || test::is_updated(op, 0)) return;
    for (DType dtype : kAllDTypes) {
      if (std::find(op.dtypes.begin(), op.dtypes.end(), dtype) != op.dtypes.end()) continue;
      const Sample typed = test::as_dtype(op, sample, dtype);
      expect_named(op, typed.inputs, invalid_argument_of([&] { call(op, typed.attrs, typed.inputs); }));
    }
  });
}

TEST(Registry, AttributesOfAnotherOperatorThrow) {
  for_each_sample([](const Operator& op, const Sample& sample) {
    const Attrs strange = Strange{};
    expect_named(op, sample.inputs, invalid_argument_of([&] { call(op, strange, sample.inputs); }));
    NDArray out = ones({2});
    expect_named(op, sample.inputs, invalid_argument_of([&] { call_into(out, op, strange, sample.inputs); }));
  });
}

TEST(Registry, WhatIsIncompleteOrTakenIsNotAdded) {
  static Operator nameless;
  nameless.kernel.name = "";
  EXPECT_NE("", invalid_argument_of([] { register_operator(nameless); }));
  static Operator empty_one;
  empty_one.kernel.name = "registry_test_empty";
  EXPECT_NE("", invalid_argument_of([] { register_operator(empty_one); }));
  static Operator taken = *find_operator("add");
  EXPECT_TRUE(contains(invalid_argument_of([] { register_operator(taken); }), "'add'"));
  EXPECT_EQ(nullptr, find_operator("registry_test_empty"));
}

}  // namespace
}  // namespace mx
