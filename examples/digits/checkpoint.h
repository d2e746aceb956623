// A checkpoint: named parts of arrays and a few texts in one safetensors file, which is replaced as a whole.
#pragma once

#include <string>

#include "ndarray/save.h"

namespace mx::examples {

class Checkpoint {
 public:
  void add(const std::string& part, const NamedArrays& arrays);
  void set(const std::string& name, const std::string& text) { texts_[name] = text; }
  /// Waits for the arrays. Even if the process is killed meanwhile, the file is either the old checkpoint or
  /// all of the new one. `ops`: the calls to the operating system, for tests.
  void save(const std::string& path, io::FileOps& ops = io::FileOps::posix()) const;

  static Checkpoint load(const std::string& path);
  NamedArrays part(const std::string& name) const;
  /// Throws InvalidArgument if the text of that name is another one.
  void expect(const std::string& name, const std::string& text) const;

 private:
  NamedArrays arrays_;
  FileMetadata texts_;
};

}  // namespace mx::examples
