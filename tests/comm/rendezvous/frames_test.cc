// The frames of the rendezvous, and the texts about lost processes.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "comm/rendezvous/local.h"
#include "comm/rendezvous/lost.h"
#include "comm/rendezvous/protocol.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

std::vector<Frame> decode_all(const std::string& bytes, size_t part) {
  FrameDecoder decoder;
  std::vector<Frame> frames;
  for (size_t at = 0; at < bytes.size(); at += part) {
    decoder.receive(std::as_bytes(std::span(bytes)).subspan(at, std::min(part, bytes.size() - at)));
    while (auto frame = decoder.next()) frames.push_back(std::move(*frame));
    EXPECT_LT(decoder.partial_bytes(), kLongestFrame);
  }
  return frames;
}

TEST(Frames, ComeBackHoweverTheyAreCut) {
  std::mt19937 random(3);
  const auto text = [&](size_t bytes) {
    std::string out(bytes, '\0');
    for (char& c : out) c = static_cast<char>(random());
    return out;
  };
  std::vector<Frame> sent;
  std::string bytes;
  for (uint8_t kind = 1; kind <= kFrameKinds; ++kind)
    for (const size_t value : {0, 1, 1000}) {
      sent.push_back({static_cast<FrameKind>(kind), (uint64_t{random()} << 32) | random(),
                      -static_cast<int64_t>(random()), text(kind == 3 ? Rendezvous::kLongestKey : kind - 1u),
                      text(value)});
      encode(sent.back(), bytes);
    }
  sent.push_back({FrameKind::value, 1, 2, "", text(Rendezvous::kLongestValue)});
  encode(sent.back(), bytes);
  for (const size_t part : {1, 5, 24, 1000, 1 << 20}) EXPECT_EQ(decode_all(bytes, part), sent) << part;
}

TEST(Frames, SizesAreCheckedBeforeAnythingIsStored) {
  const std::string good = encode({FrameKind::put, 1, 2, "key", "value"});
  const auto refused = [&](size_t at, std::vector<int> bytes) {
    std::string bad = good;
    for (size_t i = 0; i < bytes.size(); ++i) bad[at + i] = static_cast<char>(bytes[i]);
    FrameDecoder decoder;
    EXPECT_THROW(decoder.receive(std::as_bytes(std::span(bad)).first(kFrameHeaderBytes)), ProtocolError)
        << "byte " << at << " is " << bytes[0];
  };
  refused(0, {0xff, 0xff, 0xff, 0xff});  // huge
  refused(0, {0xfd, 0xff, 0xff, 0xff});  // its size overflows 32 bits
  refused(0, {0xff, 0xff, 0xff, 0x7f});
  refused(0, {1, 0, 2, 0});  // beyond the limit
  refused(0, {0, 0, 0, 0});  // less than a header
  refused(0, {19, 0, 0, 0});
  refused(4, {0});
  refused(4, {kFrameKinds + 1});
  refused(4, {255});
  refused(5, {1});
  refused(6, {9, 0});  // the key does not fit into the frame
  refused(6, {1, 1});  // longer than keys may be
  refused(6, {0xff, 0xff});
  std::string long_value =
      encode({FrameKind::put, 1, 2, std::string(256, 'k'), std::string(Rendezvous::kLongestValue, 'v')});
  long_value[6] = long_value[7] = 0;  // the key's bytes become a part of the value
  EXPECT_THROW(decode_all(long_value, 1 << 20), ProtocolError);
}

TEST(Frames, ACutFrameIsNoFrame) {
  const std::string bytes = encode({FrameKind::put, 1, 2, "key", "value"});
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_TRUE(decode_all(bytes.substr(0, length), 7).empty());
}

TEST(Lost, EntriesComeBack) {
  const LostProcess lost{3, "server", 12, "n1", -1, "two\nlines"};
  EXPECT_EQ(lost_key(lost), "3/lost/server12");
  EXPECT_EQ(lost_key(lost).rfind(lost_prefix(3), 0), 0u);
  const LostProcess again = parse_lost(lost_key(lost), lost_value(lost));
  EXPECT_EQ(to_string(again), to_string(lost));
  EXPECT_EQ(to_string(again), "server 12 on host n1: two\nlines") << "the step is not known";
}

TEST(Lost, MalformedEntriesAreRefused) {
  for (const char* key : {"", "lost/worker1", "3/lost/", "3/lost/worker", "3/lost/1", "x/lost/worker1",
                          "3/lost/worker1x", "3/lost/worker99999999999"})
    EXPECT_THROW(parse_lost(key, "n1\n0\nreason"), ProtocolError) << key;
  for (const char* value : {"", "n1", "n1\n0", "n1\nx\nreason", "n1\n\nreason", "\n"})
    EXPECT_THROW(parse_lost("3/lost/worker1", value), ProtocolError) << value;
}

TEST(Lost, AProcessSaysOnceBecauseOfWhichItFails) {
  const auto table = make_local_rendezvous();
  report_consequence(*table, {3, {"server", 0}, {"worker", 12}});
  report_consequence(*table, {3, {"server", 0}, {"worker", 13}});  // the first one counts
  const std::string key = consequence_prefix(3) + "server0";
  const Consequence got = parse_consequence(key, table->get(key, Deadline::after_ms(1000)));
  EXPECT_EQ(got.epoch, 3);
  EXPECT_EQ(got.process, (ProcessName{"server", 0}));
  EXPECT_EQ(got.cause, (ProcessName{"worker", 12}));
  EXPECT_FALSE(got.late);
  report_consequence(*table, {3, {"worker", 1}, {"worker", 2}, true});
  const std::string late = consequence_prefix(3) + "worker1";
  const Consequence waited = parse_consequence(late, table->get(late, Deadline::after_ms(1000)));
  EXPECT_EQ(waited.cause, (ProcessName{"worker", 2}));
  EXPECT_TRUE(waited.late);
  EXPECT_EQ(waited.host, "");
  report_consequence(*table, {3, {"worker", 4}, {"server", 1}, true, "n0"});
  const std::string placed = consequence_prefix(3) + "worker4";
  const Consequence on_host = parse_consequence(placed, table->get(placed, Deadline::after_ms(1000)));
  EXPECT_EQ(on_host.cause, (ProcessName{"server", 1}));
  EXPECT_TRUE(on_host.late);
  EXPECT_EQ(on_host.host, "n0");
  for (const char* bad : {"", "3/because/", "3/because/worker", "x/because/worker1", "3/lost/worker1"})
    EXPECT_THROW(parse_consequence(bad, "worker1"), ProtocolError) << bad;
  EXPECT_THROW(parse_consequence(key, "worker"), ProtocolError);
}

}  // namespace
}  // namespace mx::comm
