#include "examples/text/additions.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "engine/base/check.h"

namespace mx::examples {
namespace {

const std::string kCharacters = "0123456789+=";

/// Returns a number that is as good as random, but always the same for the same two. Source of the formula:
/// G. Steele et al., "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
uint64_t scrambled(uint64_t a, uint64_t b) {
  uint64_t x = (a * 0x9e3779b97f4a7c15 + b + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

int64_t random_number(std::mt19937_64& random, int64_t most_digits) {
  int64_t end = 10;
  for (uint64_t digits = 1 + random() % static_cast<uint64_t>(most_digits); digits > 1; --digits) end *= 10;
  const int64_t begin = end == 10 ? 0 : end / 10;
  return begin + static_cast<int64_t>(random() % static_cast<uint64_t>(end - begin));
}

int64_t token_of(char character) { return static_cast<int64_t>(kCharacters.find(character)); }

}  // namespace

Additions::Additions(int64_t digits, int64_t seed) : digits_(digits), seed_(seed) {
  MX_CHECK(digits >= 2 && digits <= 9, InvalidArgument, "[additions] expected 2 to 9 digits, got ", digits);
}

bool Additions::is_test(const Addition& addition) {
  const auto [low, high] = std::minmax(addition.a, addition.b);
  return scrambled(static_cast<uint64_t>(low), static_cast<uint64_t>(high)) % 10 == 0;
}

std::vector<Addition> Additions::training(int64_t step, int64_t count) const {
  std::mt19937_64 random(scrambled(static_cast<uint64_t>(seed_), static_cast<uint64_t>(step)));
  std::vector<Addition> drawn;
  while (static_cast<int64_t>(drawn.size()) < count) {
    const int64_t a = random_number(random, digits_), b = random_number(random, digits_);
    if (!is_test({a, b})) drawn.push_back({a, b});
  }
  return drawn;
}

std::vector<Addition> Additions::test(int64_t count) const {
  std::mt19937_64 random(static_cast<uint64_t>(seed_));
  std::vector<Addition> drawn;
  std::set<std::pair<int64_t, int64_t>> known;
  // A tenth of the pairs is for tests, and short numbers come again and again: hence many attempts.
  for (int64_t attempts = 100 * count; attempts > 0 && static_cast<int64_t>(drawn.size()) < count;
       --attempts) {
    const int64_t a = random_number(random, digits_), b = random_number(random, digits_);
    if (is_test({a, b}) && known.emplace(a, b).second) drawn.push_back({a, b});
  }
  return drawn;
}

AdditionBatch batch_of(std::span<const Addition> additions) {
  MX_CHECK(!additions.empty(), InvalidArgument, "[additions] expected 1 addition or more, got none");
  std::vector<std::string> questions, answers;
  size_t longest_question = 0, longest_answer = 0;
  for (const Addition& addition : additions) {
    questions.push_back(addition.question());
    answers.push_back(addition.answer());
    longest_question = std::max(longest_question, questions.back().size());
    longest_answer = std::max(longest_answer, answers.back().size());
  }
  const size_t batch = additions.size(), steps = longest_answer + 1;
  AdditionBatch result;
  std::vector<int64_t> question(longest_question * batch, 0), input(steps * batch, kAdditionEnd),
      target(steps * batch, kAdditionIgnore);
  for (size_t i = 0; i < batch; ++i) {
    const std::string &q = questions[i], &a = answers[i];
    for (size_t t = 0; t < q.size(); ++t) question[t * batch + i] = token_of(q[t]);
    for (size_t t = 0; t < a.size(); ++t) target[t * batch + i] = input[(t + 1) * batch + i] = token_of(a[t]);
    target[a.size() * batch + i] = kAdditionEnd;
    result.lengths.push_back(static_cast<int64_t>(q.size()));
    result.tokens += static_cast<int64_t>(q.size() + a.size() + 1);
  }
  const auto columns = [&](const std::vector<int64_t>& tokens) {
    return from_data(tokens.data(),
                     Shape{static_cast<int64_t>(tokens.size() / batch), static_cast<int64_t>(batch)});
  };
  result.question = columns(question);
  result.input = columns(input);
  result.target = columns(target);
  return result;
}

std::string answer_of(std::span<const int64_t> tokens) {
  std::string text;
  for (const int64_t token : tokens) {
    if (token == kAdditionEnd) break;
    text.push_back(kCharacters.at(static_cast<size_t>(token)));
  }
  return text;
}

}  // namespace mx::examples
