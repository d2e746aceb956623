// Operators may be called by constructors of static objects, before main: their records are constants.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "operators/operators.h"

namespace mx {
namespace {

// The result of each call before main: the empty text, or the message of its error.
const std::map<std::string, std::string> kSaid = [] {
  const NDArray x = ones({2, 3}), labels = zeros({2}, i64), vector = ones({3});
  const std::map<std::string, std::function<NDArray()>> calls = {
      {"random",
       [] {
         return rand({2, 3});
       }},
      {"dropout", [&] { return dropout(x, 0.5); }},
      {"matmul", [&] { return matmul(x, x.transpose()); }},
      {"softmax", [&] { return softmax(x); }},
      {"cross_entropy", [&] { return cross_entropy(x, labels); }},
      {"mse_loss", [&] { return mse_loss(x, x); }},
      {"sort", [&] { return sort(x); }},
      {"take", [&] { return take(x, labels); }},
      {"index with arrays", [&]() -> NDArray { return x[labels]; }},
      {"mask", [&]() -> NDArray { return x[x > 0]; }},
      {"where", [&] { return where(x > 0, x, 0); }},
      {"variance", [&] { return x.variance(); }},
      {"mean", [&] { return x.mean(); }},
      {"cumsum", [&] { return cumsum(x); }},
      {"exp", [&] { return exp(x); }},
      {"add", [&] { return x + 1; }},
      {"concat",
       [&] {
         return concat({x, x});
       }},
      {"pad",
       [&] {
         return pad(x, {1, 1, 1, 1});
       }},
      {"cast", [&] { return x.to(f16); }},
      {"special", [&] { return erfinv(x * 0.5); }},
      {"polygamma", [&] { return polygamma(x, 1); }},
  };
  std::map<std::string, std::string> said;
  for (const auto& [name, call] : calls) {
    try {
      call().wait();
      said[name] = "";
    } catch (const std::exception& e) {
      said[name] = e.what();
    }
  }
  return said;
}();

TEST(StaticObject, MayCallOperatorsInItsConstructor) {
  EXPECT_EQ(21u, kSaid.size());
  for (const auto& [name, message] : kSaid) EXPECT_EQ("", message) << name;
}

TEST(RecordList, RefusesMoreThanItHolds) {
  detail::RecordList<int, 2> list = {1, 2};
  EXPECT_THROW(list.push_back(3), InvalidArgument);
  EXPECT_EQ(2u, list.size());
}

}  // namespace
}  // namespace mx
