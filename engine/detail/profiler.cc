#include "engine/detail/profiler.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <ostream>
#include <sstream>
#include <system_error>

#include "engine/base/check.h"
#include "engine/detail/device_lanes.h"
#include "engine/detail/failure.h"
#include "engine/detail/pools.h"

namespace mx::detail {

namespace {

// Returns the text as a JSON string, which is also a valid Graphviz string.
std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (const unsigned char c : text) {
    if (c == '"' || c == '\\') {
      out << '\\' << c;
    } else if (c < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      out << "\\u00" << kHex[c >> 4] << kHex[c & 15];
    } else {
      out << c;
    }
  }
  out << '"';
  return out.str();
}

}  // namespace

void Profiler::start() {
  std::lock_guard lock(mutex_);
  spans_.clear();
  memory_.clear();
  tracking_.store(true);
  tracing_.store(true);
}

void Profiler::stop() {
  std::lock_guard lock(mutex_);
  tracing_.store(false);
  tracking_.store(history_ > 0);
}

void Profiler::linked(Op* op) noexcept {
  if (op->device == kInternalLane) return;
  std::lock_guard lock(mutex_);
  try {
    ids_[op] = add_node(op);
  } catch (const std::bad_alloc&) {
  }
}

void Profiler::linked(const Op* replay, const std::vector<Op*>& nodes) noexcept {
  std::lock_guard lock(mutex_);
  try {
    ids_[replay] = next_id_;
    for (Op* op : nodes) add_node(op);
  } catch (const std::bad_alloc&) {
    ids_.erase(replay);  // as if tracking had been off
  }
}

void Profiler::replay_begins(const Op* replay, const std::vector<Op*>& nodes) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = ids_.find(replay);
  uint64_t id = found != ids_.end() ? found->second : 0;
  for (Op* op : nodes) {
    ids_.erase(op);
    if (id == 0) continue;  // tracking was off when the replay was linked
    try {
      ids_[op] = id++;
    } catch (const std::bad_alloc&) {
    }
  }
}

// Precondition: mutex_ is held. Returns the node's id.
uint64_t Profiler::add_node(Op* op) {
  Node node;
  node.id = next_id_++;
  const uint64_t made = node.id;
  node.name = op->cold().name;
  node.where = place(op->cold().where);
  const auto depend = [&](uint64_t id) {
    if (id != 0 && id != node.id && std::find(node.after.begin(), node.after.end(), id) == node.after.end()) {
      node.after.push_back(id);
    }
  };
  for_each_link(op, [&](Link& link) {
    VarHistory& var = vars_[link.var()];
    if (!link.exclusive()) {
      depend(var.writer);
      var.readers.push_back(node.id);
      return;
    }
    if (var.readers.empty()) depend(var.writer);
    for (const uint64_t reader : var.readers) depend(reader);
    var.readers.clear();
    var.writer = node.id;
  });
  nodes_.push_back(std::move(node));
  if (!tracing_.load(std::memory_order_relaxed)) {
    while (nodes_.size() > history_) nodes_.pop_front();
  }
  return made;
}

void Profiler::released(const Op* op) {
  std::lock_guard lock(mutex_);
  ids_.erase(op);
}

void Profiler::add(const Op* op, std::string row, int64_t begin_ns, int64_t end_ns, const char* outcome) {
  std::lock_guard lock(mutex_);
  const auto found = ids_.find(op);
  spans_.push_back({found != ids_.end() ? found->second : 0, std::move(row), const_cast<Op*>(op)->cold().name,
                    outcome, nullptr, begin_ns, end_ns});
}

void Profiler::span(const std::string& row, const char* name, int64_t begin_ns, int64_t end_ns,
                    const char* category) {
  std::lock_guard lock(mutex_);
  spans_.push_back({0, row, name, nullptr, category, begin_ns, end_ns});
}

void Profiler::memory(Context context, int64_t at_ns, size_t in_use_bytes, size_t reserved_bytes) noexcept {
  std::lock_guard lock(mutex_);
  try {
    memory_.push_back({context, at_ns, in_use_bytes, reserved_bytes});
  } catch (const std::bad_alloc&) {
  }
}

// Writes a temporary file and renames it, so that the file is either complete or unchanged. A pipe or a
// device is written to directly.
void Profiler::write_trace(const std::string& path) const {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool in_place = fs::exists(path, ignored) && !fs::is_regular_file(path, ignored);
  const std::string part = in_place ? path : concat(path, ".", ::getpid(), ".part");
  std::ofstream out(part);
  MX_CHECK(out, InvalidArgument, "[write_trace] expected a writable file, got '", path,
           "': ", std::strerror(errno));
  std::deque<Node> nodes;
  std::vector<Span> spans;
  std::vector<MemorySample> samples;
  {
    std::lock_guard lock(mutex_);
    nodes = nodes_;
    spans = spans_;
    samples = memory_;
  }
  write_events(out, nodes, spans, samples);
  out.close();
  bool written = !out.fail();
  if (!in_place) {
    written = written && std::rename(part.c_str(), path.c_str()) == 0;
    const int reason = errno;
    if (!written) fs::remove(part, ignored);
    errno = reason;
  }
  MX_CHECK(written, InvalidArgument, "[write_trace] expected to write the whole of '", path,
           "': ", std::strerror(errno));
}

void Profiler::write_events(std::ostream& out, const std::deque<Node>& nodes,
                            const std::vector<Span>& all_spans, const std::vector<MemorySample>& samples) {
  std::map<std::string, int> rows;
  std::unordered_map<uint64_t, const Span*> spans;
  for (const Span& span : all_spans) {
    rows.emplace(span.row, 0);
    if (span.id != 0) spans[span.id] = &span;
  }
  int next = 1;
  for (auto& [name, number] : rows) number = next++;
  const auto us = [](int64_t ns) {
    return concat(ns / 1000, ".", std::to_string(1000 + ns % 1000).substr(1));
  };

  out << "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
      << "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":\"mx engine\"}}";
  for (const auto& [name, number] : rows) {
    out << ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":" << number
        << ",\"name\":\"thread_name\",\"args\":{\"name\":" << quoted(name) << "}}";
  }
  for (const Span& span : all_spans) {
    out << ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":" << rows[span.row] << ",\"ts\":" << us(span.begin_ns)
        << ",\"dur\":" << us(span.end_ns - span.begin_ns)
        << ",\"name\":" << quoted(name_or_default(span.name)) << ",\"args\":{\"id\":" << span.id;
    if (span.outcome != nullptr) out << ",\"outcome\":" << quoted(span.outcome);
    out << "}";
    if (span.category != nullptr) out << ",\"cat\":" << quoted(span.category);
    out << "}";
  }
  for (const MemorySample& sample : samples) {
    out << ",\n{\"ph\":\"C\",\"pid\":1,\"ts\":" << us(sample.at_ns)
        << ",\"name\":" << quoted(to_string(sample.context) + " memory")
        << ",\"args\":{\"in use\":" << sample.in_use_bytes << ",\"reserved\":" << sample.reserved_bytes
        << "}}";
  }
  // An arrow starts inside the slice of the earlier operation and ends at the start of the later one's.
  uint64_t arrow = 0;
  for (const Node& node : nodes) {
    const auto to = spans.find(node.id);
    if (to == spans.end()) continue;
    for (const uint64_t id : node.after) {
      const auto from = spans.find(id);
      if (from == spans.end()) continue;
      ++arrow;
      const int64_t leave = std::max(from->second->begin_ns, from->second->end_ns - 1);
      out << ",\n{\"ph\":\"s\",\"pid\":1,\"cat\":\"dep\",\"name\":\"dep\",\"id\":" << arrow
          << ",\"tid\":" << rows[from->second->row] << ",\"ts\":" << us(leave) << "}";
      out << ",\n{\"ph\":\"f\",\"bp\":\"e\",\"pid\":1,\"cat\":\"dep\",\"name\":\"dep\",\"id\":" << arrow
          << ",\"tid\":" << rows[to->second->row] << ",\"ts\":" << us(to->second->begin_ns) << "}";
    }
  }
  out << "\n]}\n";
}

void Profiler::write_dot(std::ostream& out) const {
  std::deque<Node> nodes;
  {
    std::lock_guard lock(mutex_);
    nodes = nodes_;
  }
  const size_t first = nodes.size() > history_ ? nodes.size() - history_ : 0;
  const uint64_t first_id = first < nodes.size() ? nodes[first].id : 0;
  out << "digraph engine {\n  node [shape=box];\n";
  for (size_t i = first; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    out << "  o" << node.id << " [label=" << quoted(name_or_default(node.name))
        << ", tooltip=" << quoted(node.where) << "];\n";
    for (const uint64_t id : node.after) {
      if (id >= first_id) out << "  o" << id << " -> o" << node.id << ";\n";
    }
  }
  out << "}\n";
}

}  // namespace mx::detail
