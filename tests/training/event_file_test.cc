// Event files for TensorBoard, decoded by code that shares nothing with the writer.
#include "nn/training/event_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ndarray/io/io_error.h"
#include "tests/ndarray/io_temp.h"
#include "tests/support/errors.h"

namespace mx::training {
namespace {

using test::error_of;
using test::slurp;
using test::TempFolder;

/// The fields of a message: numbers of fields with integers, or with bytes (also those of fixed size).
struct Message {
  std::multimap<uint32_t, uint64_t> integers;
  std::multimap<uint32_t, std::string> bytes;

  explicit Message(const std::string& text) {
    size_t at = 0;
    const auto varint = [&] {
      uint64_t value = 0;
      for (int shift = 0;; shift += 7) {
        const auto byte = static_cast<uint8_t>(text.at(at++));
        value |= uint64_t{byte & 0x7Fu} << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < text.size()) {
      const uint64_t key = varint();
      const auto field = static_cast<uint32_t>(key >> 3);
      if ((key & 7) == 0) {
        integers.emplace(field, varint());
        continue;
      }
      const size_t size = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : static_cast<size_t>(varint());
      if (at + size > text.size()) throw std::runtime_error("a field that is cut off");
      bytes.emplace(field, text.substr(at, size));
      at += size;
    }
  }
  std::string text(uint32_t field) const { return bytes.find(field)->second; }
  Message message(uint32_t field) const { return Message(text(field)); }
  template <class T>
  static std::vector<T> numbers(const std::string& packed) {
    std::vector<T> values(packed.size() / sizeof(T));
    std::memcpy(values.data(), packed.data(), packed.size());
    return values;
  }
  double number(uint32_t field) const { return numbers<double>(text(field)).at(0); }
};

/// CRC-32C bit by bit.
uint32_t slow_crc32c(const std::string& text) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char c : text)
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t low = (crc ^ static_cast<uint32_t>(static_cast<uint8_t>(c) >> bit)) & 1;
      crc = crc >> 1 ^ (low != 0 ? 0x82F63B78 : 0);
    }
  return crc ^ 0xFFFFFFFF;
}

/// Returns the contents of all records, and checks their checksums.
std::vector<Message> events_of(const std::string& path) {
  const std::string file = slurp(path);
  std::vector<Message> events;
  const auto check = [](const std::string& text, uint32_t stored) {
    const uint32_t crc = slow_crc32c(text);
    EXPECT_EQ(static_cast<uint32_t>((crc >> 15 | crc << 17) + 0xA282EAD8), stored);
  };
  for (size_t at = 0; at < file.size();) {
    const auto size = static_cast<size_t>(Message::numbers<uint64_t>(file.substr(at, 8)).at(0));
    check(file.substr(at, 8), Message::numbers<uint32_t>(file.substr(at + 8, 4)).at(0));
    const std::string event = file.substr(at + 12, size);
    check(event, Message::numbers<uint32_t>(file.substr(at + 12 + size, 4)).at(0));
    events.emplace_back(event);
    at += 16 + size;
  }
  return events;
}

TEST(EventFile, ChecksumsAreThoseOfTheStandard) {
  EXPECT_EQ(0xE3069283u, detail::crc32c("123456789"));            // the check value of CRC-32C
  EXPECT_EQ(0x8A9136AAu, detail::crc32c(std::string(32, '\0')));  // RFC 3720, B.4
  EXPECT_EQ(0x62A8AB43u, detail::crc32c(std::string(32, '\xFF')));
}

TEST(EventFile, HasWhatWasWritten) {
  const TempFolder folder;
  std::string path;
  {
    EventWriter events(folder / "runs/a", {.wall_time = 1234.5, .suffix = ".test"});
    path = events.path();
    events.add_scalar("loss", 0.25, 3);
    events.add_scalar("accuracy", full({1}, 0.5), 300);
    events.add_histogram("weights", array({-1.0, 0.0, 0.1, 3.0, std::nan("")}), 7, 4);
    events.add_histogram("constant", ones({5}), 8, 3);
    events.add_histogram("empty", zeros({0}), 9);
    events.add_image("grey", array({{0.0f, 0.5f, 2.0f}, {-1.0f, 1.0f, std::nanf("")}}), 1);
    events.add_image("colour", full({3, 2, 2}, 200, u8), 2);
    EXPECT_THROW(events.add_scalar("two", ones({2}), 1), InvalidArgument);
    EXPECT_THROW(events.add_image("two", ones({2, 3, 3}), 1), InvalidArgument);
    EXPECT_THROW(events.add_image("whole", ones({3, 3}, i64), 1), InvalidArgument);
    EXPECT_THROW(events.add_histogram("none", ones({3}), 1, 0), InvalidArgument);
    events.add_text("notes", "**lr** 0.1", 5);
    events.flush();
    EXPECT_EQ(9u, events_of(path).size());
  }
  EXPECT_TRUE(test::contains(path, "events.out.tfevents.1234."));
  const std::vector<Message> events = events_of(path);
  ASSERT_EQ(9u, events.size());
  EXPECT_EQ("brain.Event:2", events[0].text(3));
  for (const Message& event : events) EXPECT_EQ(1234.5, event.number(1));
  const auto value = [&](size_t i, const std::string& tag, uint64_t step) {
    EXPECT_EQ(step, events[i].integers.find(2)->second);
    const Message found = events[i].message(5).message(1);
    EXPECT_EQ(tag, found.text(1));
    return found;
  };
  EXPECT_EQ(0.25f, Message::numbers<float>(value(1, "loss", 3).text(2)).at(0));
  EXPECT_EQ(0.5f, Message::numbers<float>(value(2, "accuracy", 300).text(2)).at(0));

  const Message weights = value(3, "weights", 7).message(5);
  EXPECT_EQ(-1, weights.number(1));
  EXPECT_EQ(3, weights.number(2));
  EXPECT_EQ(4, weights.number(3));
  EXPECT_DOUBLE_EQ(2.1, weights.number(4));
  EXPECT_DOUBLE_EQ(10.01, weights.number(5));
  EXPECT_EQ((std::vector<double>{0, 1, 2, 3}), Message::numbers<double>(weights.text(6)));
  EXPECT_EQ((std::vector<double>{1, 2, 0, 1}), Message::numbers<double>(weights.text(7)));
  EXPECT_EQ((std::vector<double>{5, 0, 0}),
            Message::numbers<double>(value(4, "constant", 8).message(5).text(7)));
  EXPECT_EQ(0, value(5, "empty", 9).message(5).number(3));

  const Message notes = value(8, "notes", 5);
  EXPECT_EQ("text", notes.message(9).message(1).text(1));
  EXPECT_EQ("**lr** 0.1", notes.message(8).text(8));
  EXPECT_EQ(7u, notes.message(8).integers.find(1)->second);  // DT_STRING
  EXPECT_EQ(1u, notes.message(8).message(2).message(2).integers.find(1)->second);

  // PNG: signature, size, and pixels after decompression.
  const auto pixels = [](const Message& image, uint64_t h, uint64_t w, uint64_t channels) {
    EXPECT_EQ(h, image.integers.find(1)->second);
    EXPECT_EQ(w, image.integers.find(2)->second);
    EXPECT_EQ(channels, image.integers.find(3)->second);
    const std::string png = image.text(4);
    EXPECT_EQ("\x89PNG\r\n\x1a\n", png.substr(0, 8));
    std::string content;
    for (size_t at = 8; at < png.size();) {
      const auto u32 = [&](size_t i) {
        uint32_t number = 0;
        for (size_t k = 0; k < 4; ++k) number = number << 8 | static_cast<uint8_t>(png.at(i + k));
        return number;
      };
      const uint32_t size = u32(at);
      const std::string body = png.substr(at + 4, size + 4);
      EXPECT_EQ(crc32(0, reinterpret_cast<const Bytef*>(body.data()), size + 4), u32(at + 8 + size));
      if (body.starts_with("IHDR")) {
        EXPECT_EQ(w, u32(at + 8));
        EXPECT_EQ(h, u32(at + 12));
      }
      if (body.starts_with("IDAT")) content = body.substr(4);
      at += 12 + size;
    }
    std::vector<Bytef> raw(h * (1 + w * channels));
    uLongf size = raw.size();
    EXPECT_EQ(Z_OK,
              uncompress(raw.data(), &size, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    EXPECT_EQ(raw.size(), size);
    return std::vector<int>(raw.begin(), raw.end());
  };
  EXPECT_EQ((std::vector<int>{0, 0, 128, 255, 0, 0, 255, 0}),
            pixels(value(6, "grey", 1).message(4), 2, 3, 1));
  const std::vector<int> colour = pixels(value(7, "colour", 2).message(4), 2, 2, 3);
  EXPECT_EQ(14u, colour.size());
  EXPECT_EQ(200, colour[13]);
}

TEST(EventFile, AFolderThatCannotBeMadeIsAnError) {
  error_of<FileError>([] { EventWriter events("/dev/null/runs"); });
}

}  // namespace
}  // namespace mx::training
