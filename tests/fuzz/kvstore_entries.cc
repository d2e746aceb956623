#include "tests/fuzz/kvstore_entries.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "kvstore/server/machine.h"
#include "kvstore/server/wire.h"

namespace mx::fuzz {
namespace {

constexpr size_t kMostElements = 1 << 16;  // so that a short file does not allocate much

void promise(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Adds the gradient to the value. A body of a wrong size must never get here.
class AddingUpdater final : public kv::Updater {
 public:
  void set_optimizer(const kv::OptionsBody& optimizer) override { on_ = !optimizer.name.empty(); }
  bool has_optimizer() const override { return on_; }
  void set_option(const std::string&, double) override {}
  kv::Bytes convert(const kv::Bytes& elements, comm::Type from, comm::Type to) override {
    return kv::Bytes::of(std::string(elements.size / comm::size_of(from) * comm::size_of(to), '\0'));
  }
  kv::Bytes update(uint32_t, const kv::KeyBody& key, const kv::Bytes& value,
                   const kv::Bytes& gradient) override {
    promise(value.size == key.count * comm::size_of(key.type), "a value has the declared size");
    promise(gradient.size == value.size, "a gradient has the declared size");
    std::string sum(value.text());
    for (size_t i = 0; i < sum.size(); ++i)
      sum[i] = static_cast<char>(sum[i] + static_cast<char>(gradient.data[i]));
    return kv::Bytes::of(sum);
  }
  void forget_value(uint32_t) override {}
  void erase(uint32_t) override {}
  std::vector<kv::StateArray> state(uint32_t, const kv::KeyBody&, const kv::Bytes&) override { return {}; }
  void set_state(uint32_t, const kv::KeyBody&, const kv::Bytes&,
                 const std::vector<kv::StateArray>&) override {}

 private:
  bool on_ = false;
};

/// Calls `take` for each message. Returns false if the bytes do not end behind a message.
template <class Limit, class Take>
bool for_each_message(std::span<const std::byte> bytes, Limit&& limit, Take&& take) {
  kv::Decoder decoder([&](const kv::Header& header) {
    const uint64_t largest = std::min<uint64_t>(limit(header), kMostElements);
    if (header.bytes > largest) throw ProtocolError("[fuzz] expected a smaller body");
    return header.bytes == 0 ? kv::Bytes() : kv::Bytes::of(std::string(header.bytes, '\0'));
  });
  while (!bytes.empty()) {
    const std::span<std::byte> space = decoder.space();
    promise(!space.empty(), "there is space for the next byte");
    const size_t part = std::min(space.size(), bytes.size());
    std::memcpy(space.data(), bytes.data(), part);
    bytes = bytes.subspan(part);
    if (decoder.filled(part)) take(decoder.take());
  }
  return decoder.between_messages();
}

template <class F>
bool accepted_by(F&& read) {
  try {
    return read();
  } catch (const Error& e) {
    promise(std::strlen(e.what()) > 0 && e.what()[0] == '[', "a message begins with its reader");
    return false;
  }
}

void check_body(const kv::Message& message) {
  const std::string text(message.body.text());
  switch (message.header.kind) {
    case kv::Kind::open:
      promise(encode(kv::decode_open(text)) == text, "open comes back");
      break;
    case kv::Kind::declare:
      promise(encode(kv::decode_key(text)) == text, "a description comes back");
      break;
    case kv::Kind::set_optimizer:
    case kv::Kind::set_option: {
      const kv::OptionsBody body = kv::decode_options(text);
      const std::string again = encode(body);  // options in their order
      promise(again.size() == text.size() && encode(kv::decode_options(again)) == again, "options come back");
      break;
    }
    case kv::Kind::set_state:
      promise(encode(kv::decode_state(text)) == text, "state comes back");
      break;
    default:
      break;
  }
  std::byte header[kv::kHeaderBytes];
  encode(message.header, header);
  promise(kv::decode_header(header).bytes == message.body.size, "a header comes back");
}

}  // namespace

bool kvstore_message(std::span<const std::byte> bytes) {
  return accepted_by([&] {
    int messages = 0;
    const bool whole = for_each_message(
        bytes, [](const kv::Header&) { return kv::kLargestBody; },
        [&](const kv::Message& message) {
          check_body(message);
          ++messages;
        });
    return whole && messages == 1;
  });
}

bool kvstore_machine(std::span<const std::byte> bytes) {
  return accepted_by([&] {
    kv::Machine machine(std::make_shared<AddingUpdater>());
    kv::Outbox out;
    bool refused = false;
    int messages = 0;
    const auto look_at_answers = [&] {
      for (const kv::Outgoing& o : out) {
        promise(o.connection == 7, "an answer goes to a connection");
        promise(o.message.header.bytes == o.message.body.size, "an answer tells its size");
        promise(o.message.header.kind == kv::Kind::answer || o.message.header.kind == kv::Kind::refusal,
                "an answer is one");
        refused = refused || o.message.header.kind == kv::Kind::refusal;
      }
      out.clear();
    };
    const bool whole = for_each_message(
        bytes, [&](const kv::Header& header) { return machine.largest_body(header); },
        [&](kv::Message message) {
          ++messages;
          machine.receive(7, std::move(message), out);
          look_at_answers();
        });
    machine.departed(0, out);
    look_at_answers();
    const bool good = whole && messages > 0 && !refused;
    machine.fail(std::make_exception_ptr(PeerLost("[fuzz] a worker is lost")), 0, out);
    look_at_answers();
    return good;
  });
}

}  // namespace mx::fuzz
