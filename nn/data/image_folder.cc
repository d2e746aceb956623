#include "nn/data/image_folder.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "nn/data/bad_records.h"

namespace mx::data {
namespace {

namespace fs = std::filesystem;

bool is_image_name(const fs::path& path) {
  std::string end = path.extension().string();
  for (char& c : end) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

class ImageFiles final : public SampleSource {
 public:
  ImageFiles(ImageList list, const ImageOptions& options) : list_(std::move(list)), options_(options) {}
  int64_t size() const override { return static_cast<int64_t>(list_.paths.size()); }
  std::vector<std::string> names() const override { return {"image", "label"}; }
  // Reads the file instead of mapping it: a page fault would block a thread that decodes.
  std::string fetch(int64_t index) const override {
    const io::MappedFile file(path(index), io::MappedFile::Access::read_only, io::MappedFile::How::read);
    return {reinterpret_cast<const char*>(file.bytes().data()), file.size()};
  }
  Sample decode(int64_t index, const std::string& bytes) const override {
    Sample sample;
    sample.push_back(
        decode_image(std::as_bytes(std::span(bytes)), detail::place("image", path(index)), options_));
    sample.push_back(host_scalar(list_.labels[static_cast<size_t>(index)]));
    return sample;
  }

 private:
  const std::string& path(int64_t index) const { return list_.paths[static_cast<size_t>(index)]; }

  ImageList list_;
  ImageOptions options_;
};

}  // namespace

ImageList list_images(const std::string& folder) {
  ImageList list;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.is_directory()) list.classes.push_back(entry.path().filename().string());
    std::sort(list.classes.begin(), list.classes.end());
    for (size_t label = 0; label < list.classes.size(); ++label) {
      std::vector<std::string> paths;
      for (const fs::directory_entry& entry :
           fs::recursive_directory_iterator(fs::path(folder) / list.classes[label]))
        if (is_image_name(entry.path()) && entry.is_regular_file()) paths.push_back(entry.path().string());
      std::sort(paths.begin(), paths.end());
      list.labels.insert(list.labels.end(), paths.size(), static_cast<int64_t>(label));
      list.paths.insert(list.paths.end(), paths.begin(), paths.end());
    }
  } catch (const fs::filesystem_error& e) {
    throw FileError("open", e.path1().empty() ? folder : e.path1().string(), e.code().value(), "");
  }
  MX_CHECK(!list.paths.empty(), InvalidArgument,
           "[image_folder] expected images (.jpg, .jpeg, .png) in subfolders of '", folder, "', got none in ",
           list.classes.size(), " subfolders");
  return list;
}

SourceHandle image_files(ImageList list, const ImageOptions& options) {
  MX_CHECK(list.paths.size() == list.labels.size(), InvalidArgument,
           "[image_files] expected as many labels as paths, got ", list.labels.size(), " and ",
           list.paths.size());
  return std::make_shared<const ImageFiles>(std::move(list), options);
}

SourceHandle image_folder(const std::string& folder, const ImageOptions& options) {
  return image_files(list_images(folder), options);
}

}  // namespace mx::data
