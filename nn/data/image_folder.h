// Folders of images, one subfolder for each class, as torchvision's ImageFolder reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/data/image_file.h"
#include "nn/data/sample_source.h"

namespace mx::data {

struct ImageList {
  std::vector<std::string> classes;  ///< the names of the subfolders, in ascending order
  std::vector<std::string> paths;
  std::vector<int64_t> labels;  ///< the place of each file's subfolder in `classes`
};

/// Lists the files below FOLDER/CLASS/ that end in .jpg, .jpeg or .png, in ascending order of class and path.
/// Symbolic links to folders are not followed. Throws FileError if the folder cannot be read, and
/// InvalidArgument if it has no images.
ImageList list_images(const std::string& folder);

/// "image", u8 (height, width, channels), and "label", i64 (). Each image is read when it is needed. An image
/// that cannot be decoded is a FormatError that names the file.
SourceHandle image_folder(const std::string& folder, const ImageOptions& options = {});
/// The same for a list, or a part of one.
SourceHandle image_files(ImageList list, const ImageOptions& options = {});

}  // namespace mx::data
