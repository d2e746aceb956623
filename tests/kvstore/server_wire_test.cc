// The messages between workers and servers: the format, its limits, and arbitrary bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "kvstore/server/wire.h"

namespace mx::kv {
namespace {

TEST(ServerWire, TheHeaderHasTheDocumentedBytes) {
  std::byte bytes[kHeaderBytes];
  encode(Header{.kind = Kind::push,
                .flags = 2,
                .store = 0x0403,
                .worker = 0x08070605,
                .key = 0x0c0b0a09,
                .incarnation = 0x14131211100f0e0d,
                .sequence = 0x1c1b1a1918171615,
                .number = 0x24232221201f1e1d,
                .bytes = 0x28272625},
         bytes);
  const std::string text(reinterpret_cast<const char*>(bytes), sizeof bytes);
  EXPECT_EQ(text.substr(0, 4), "MXKV");
  EXPECT_EQ(text[4], 4);
  for (size_t i = 5; i < 44; ++i) EXPECT_EQ(text[i], static_cast<char>(i - 3)) << i;
  const Header header = decode_header(bytes);
  EXPECT_EQ(header.sequence, 0x1c1b1a1918171615u);
  EXPECT_EQ(header.bytes, 0x28272625u);
}

TEST(ServerWire, BodiesComeBackAndEveryTruncationIsRefused) {
  KeyBody key;
  key.name = "fc1.weight";
  key.type = comm::Type::f64;
  key.shape = {3, 4};
  key.begin = 2;
  key.count = 10;
  const OptionsBody options{"sgd",
                            {{"lr", 0.5},
                             {"nesterov", true},
                             {"steps", int64_t{-3}},
                             {"big", uint64_t{1} << 63},
                             {"none", std::monostate()}}};
  const std::vector<StateArray> state{{"m", comm::Type::f32, false, std::string(16, 'x')},
                                      {"step", comm::Type::f64, true, std::string(8, 'y')}};
  const OpenBody open{.workers = 3, .sync = false, .staleness = 7, .piece_bytes = 4096};
  const KeyBody key_again = decode_key(encode(key));
  EXPECT_EQ(key_again.name, key.name);
  EXPECT_EQ(key_again.shape, key.shape);
  EXPECT_EQ(describe(key_again), "f64 (3, 4) 'fc1.weight'");
  EXPECT_EQ(decode_options(encode(options)).options, options.options);
  EXPECT_EQ(decode_state(encode(state))[1].elements, state[1].elements);
  EXPECT_EQ(decode_open(encode(open)).staleness, 7);
  const auto refused = [](const std::string& whole, auto decode) {
    for (size_t length = 0; length < whole.size(); ++length) {
      const std::vector<char> cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
      EXPECT_THROW(decode(std::string_view(cut.data(), cut.size())), ProtocolError) << length;
    }
    EXPECT_THROW(decode(whole + '\0'), ProtocolError);
  };
  refused(encode(key), [](std::string_view text) { decode_key(text); });
  refused(encode(options), [](std::string_view text) { decode_options(text); });
  refused(encode(state), [](std::string_view text) { decode_state(text); });
  refused(encode(open), [](std::string_view text) { decode_open(text); });
}

TEST(ServerWire, OptionsAreNumbersOnly) {
  EXPECT_THROW(encode(OptionsBody{"sgd", {{"code", std::string("rm -rf")}}}), InvalidArgument);
  EXPECT_THROW(encode(OptionsBody{"sgd", {{"list", std::vector<int64_t>{1}}}}), InvalidArgument);
}

TEST(ServerWire, ErrorsKeepTheirTypeAndText) {
  const auto again = [](const std::exception_ptr& error) {
    return make_error(static_cast<uint8_t>(code_of(error)), text_of(error));
  };
  const auto keeps = [&]<class E>(const E& error) {
    try {
      std::rethrow_exception(again(std::make_exception_ptr(error)));
    } catch (const E& e) {
      return std::string(e.what()) == error.what();
    } catch (...) {
      return false;
    }
  };
  EXPECT_TRUE(keeps(InvalidArgument("a")));
  EXPECT_TRUE(keeps(InvalidState("b")));
  EXPECT_TRUE(keeps(OutOfMemory("c")));
  EXPECT_TRUE(keeps(Timeout("d")));
  EXPECT_TRUE(keeps(PeerLost("e")));
  EXPECT_TRUE(keeps(ProtocolError("f")));
  EXPECT_TRUE(keeps(NumericError("g")));
  EXPECT_TRUE(keeps(Error("h")));
}

TEST(ServerWire, MessagesComeBackInPortionsOfAnySize) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::string stream;
    std::vector<std::string> bodies;
    for (int i = 0; i < 5; ++i) {
      bodies.push_back(std::string(random() % 3 == 0 ? 0 : random() % 300, static_cast<char>('a' + i)));
      std::byte header[kHeaderBytes];
      encode(Header{.kind = Kind::push, .sequence = static_cast<uint64_t>(i), .bytes = bodies.back().size()},
             header);
      stream.append(reinterpret_cast<const char*>(header), sizeof header).append(bodies.back());
    }
    Decoder decoder([](const Header& header) { return Bytes::of(std::string(header.bytes, '?')); });
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size();) {
      const std::span<std::byte> space = decoder.space();
      const size_t part = std::min({space.size(), stream.size() - at, size_t{1} + random() % 100});
      std::memcpy(space.data(), stream.data() + at, part);
      at += part;
      if (decoder.filled(part)) got.emplace_back(decoder.take().body.text());
    }
    EXPECT_EQ(got, bodies);
    EXPECT_TRUE(decoder.between_messages());
  }
}

TEST(ServerWire, AnOversizedBodyIsRefusedBeforeMemoryIsAllocated) {
  std::byte header[kHeaderBytes];
  encode(Header{.kind = Kind::push, .bytes = kLargestBody + 1}, header);
  bool allocated = false;
  Decoder decoder([&](const Header&) {
    allocated = true;
    return Bytes();
  });
  std::memcpy(decoder.space().data(), header, kHeaderBytes);
  EXPECT_THROW(decoder.filled(kHeaderBytes), ProtocolError);
  EXPECT_FALSE(allocated);
}

}  // namespace
}  // namespace mx::kv
