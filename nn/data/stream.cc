#include "nn/data/stream.h"

#include <cerrno>
#include <fstream>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::data {
namespace {

class FunctionIterable final : public IterableDataset {
 public:
  using Next = std::function<bool(Sample&)>;
  FunctionIterable(std::function<Next(int64_t)> open, std::vector<std::string> names)
      : open_(std::move(open)), names_(std::move(names)) {}
  std::vector<std::string> names() const override { return names_; }
  std::unique_ptr<SampleStream> open(int64_t epoch) const override {
    struct Stream final : SampleStream {
      Next get;
      bool next(Sample& sample) override { return get(sample); }
    };
    auto stream = std::make_unique<Stream>();
    stream->get = open_(epoch);
    MX_CHECK(stream->get != nullptr, InvalidArgument, "[iterable] expected a function, got an empty one");
    return stream;
  }

 private:
  std::function<Next(int64_t)> open_;
  std::vector<std::string> names_;
};

class TextLines final : public SampleStream {
 public:
  explicit TextLines(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) throw FileError("open", path_, errno, "");
  }
  bool next(Sample& sample) override {
    std::string line;
    if (!std::getline(file_, line)) {
      if (file_.bad()) throw FileError("read", path_, errno, "");
      return false;
    }
    const int64_t begin = offset_;
    offset_ += static_cast<int64_t>(line.size()) + 1;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    HostArray text(Shape{static_cast<int64_t>(line.size())}, u8);
    if (!line.empty()) std::memcpy(text.raw(), line.data(), line.size());
    sample.clear();
    sample.push_back(std::move(text));
    sample.push_back(host_scalar(begin));
    return true;
  }

 private:
  std::string path_;
  std::ifstream file_;
  int64_t offset_ = 0;
};

class TextLinesDataset final : public IterableDataset {
 public:
  explicit TextLinesDataset(std::string path) : path_(std::move(path)) {}
  std::vector<std::string> names() const override { return {"text", "offset"}; }
  std::unique_ptr<SampleStream> open(int64_t) const override { return std::make_unique<TextLines>(path_); }

 private:
  std::string path_;
};

}  // namespace

IterableHandle iterable(std::function<std::function<bool(Sample& sample)>(int64_t epoch)> open,
                        std::vector<std::string> names) {
  MX_CHECK(open != nullptr, InvalidArgument, "[iterable] expected a function, got an empty one");
  return std::make_shared<const FunctionIterable>(std::move(open), std::move(names));
}

IterableHandle text_lines(const std::string& path) { return std::make_shared<const TextLinesDataset>(path); }

}  // namespace mx::data
