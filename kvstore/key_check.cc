#include "kvstore/key_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::detail {
namespace {

/// What the ranks exchange first.
struct TextRecord {
  uint64_t hash = 0, bytes = 0;
};

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// Names the first line that differs, and the ranks that have each form of it.
std::string difference(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> lines;
  size_t most = 0;
  for (const std::string& text : texts) {
    lines.push_back(split_lines(text));
    most = std::max(most, lines.back().size());
  }
  for (size_t i = 0; i < most; ++i) {
    std::map<std::string, std::string> ranks;  // of each form
    for (size_t r = 0; r < lines.size(); ++r) {
      std::string& list = ranks[i < lines[r].size() ? lines[r][i] : "no further key"];
      list += (list.empty() ? "" : ", ") + std::to_string(r);
    }
    if (ranks.size() < 2) continue;
    std::vector<std::pair<std::string, std::string>> forms;  // ranks, line; in the order of the ranks
    for (const auto& [line, list] : ranks) forms.emplace_back(list, line);
    std::sort(forms.begin(), forms.end(),
              [](const auto& a, const auto& b) { return std::stoi(a.first) < std::stoi(b.first); });
    std::string message;
    for (const auto& [list, line] : forms) {
      const bool several = list.find(',') != std::string::npos;
      message += (message.empty() ? "" : "; ") + line + (several ? " on the ranks " : " on rank ") + list;
    }
    return message;
  }
  return "texts of equal lines";  // a collision of hashes; cannot happen with different hashes
}

/// The state of one comparison, which the callbacks own.
struct Comparison {
  std::string op, text;
  comm::CallOptions options;
  std::vector<TextRecord> records;
  std::string blocks;
  size_t block = 0;
  CallSequence::Done done;
};

void compare_texts(comm::Communicator& group, const std::shared_ptr<Comparison>& state) {
  const auto size = static_cast<size_t>(group.size());
  for (const TextRecord& record : state->records) state->block = std::max(state->block, record.bytes);
  state->blocks.assign(state->block * size, '\0');
  std::memcpy(state->blocks.data() + state->block * static_cast<size_t>(group.rank()), state->text.data(),
              state->text.size());
  comm::Request request{.collective = comm::Collective::allgather,
                        .in = state->blocks.data() + state->block * static_cast<size_t>(group.rank()),
                        .out = state->blocks.data(),
                        .count = state->blocks.size(),
                        .type = comm::Type::u8,
                        .options = state->options,
                        .done = {}};
  request.done = [state, size](std::exception_ptr error) {
    if (error) return state->done(error);
    std::vector<std::string> texts;
    for (size_t r = 0; r < size; ++r)
      texts.push_back(state->blocks.substr(state->block * r, state->records[r].bytes));
    state->done(std::make_exception_ptr(
        ProtocolError(concat("[", state->op, "] expected the same on all ranks, got ", difference(texts)))));
  };
  group.start(std::move(request));
}

}  // namespace

uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed) {
  // Multiply and rotate, eight bytes at a time. The length is part of the hash.
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
  uint64_t hash = (seed ^ bytes) * kFactor + 1;
  const auto* at = static_cast<const unsigned char*>(data);
  const auto mix = [&](uint64_t word) {
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 29;
  };
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  uint64_t last = 0;
  if (bytes > 0) std::memcpy(&last, at, bytes);
  mix(last);
  return hash;
}

std::string describe_key(const std::string& key, const char* type, const std::string& shape) {
  std::string line = concat('"', key, "\" as ", type, ' ', shape);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

CallSequence::Call compare_lines(const std::string& op, std::vector<std::string> lines,
                                 comm::CallOptions options) {
  auto state = std::make_shared<Comparison>();
  state->op = op;
  for (const std::string& line : lines) state->text += line + "\n";
  state->options = std::move(options);
  return {.start = [state](comm::Communicator& group, CallSequence::Done done) {
    state->done = std::move(done);
    const auto rank = static_cast<size_t>(group.rank());
    state->records.resize(static_cast<size_t>(group.size()));
    state->records[rank] = {hash_bytes(state->text.data(), state->text.size()), state->text.size()};
    comm::Request request{.collective = comm::Collective::allgather,
                          .in = &state->records[rank],
                          .out = state->records.data(),
                          .count = state->records.size() * sizeof(TextRecord),
                          .type = comm::Type::u8,
                          .options = state->options,
                          .done = {}};
    request.done = [state, &group](std::exception_ptr error) {
      if (error) return state->done(error);
      const TextRecord& first = state->records[0];
      const bool equal = std::all_of(state->records.begin(), state->records.end(), [&](const auto& r) {
        return r.hash == first.hash && r.bytes == first.bytes;
      });
      if (equal) return state->done(nullptr);
      try {
        compare_texts(group, state);
      } catch (...) {
        state->done(std::current_exception());
      }
    };
    group.start(std::move(request));
  }};
}

}  // namespace mx::detail
