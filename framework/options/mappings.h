#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera::options {

/// The tables of mappings/: flags and tensor names of other programs. They are compiled into the program;
/// a folder, when given, is read instead.
class Mappings {
 public:
  Mappings() = default;
  /// `folder` replaces the compiled-in tables; empty: these. Throws ConfigError when it is not a folder.
  explicit Mappings(std::string folder);

  /// The names of all tables in the order of the alphabet, as "weights/gpt2.yaml".
  std::vector<std::string> names() const;
  /// The text of the table `name`. Throws ConfigError, naming those there are, when there is none.
  std::string text(const std::string& name) const;
  /// The same, read as YAML; origins say "mappings/weights/gpt2.yaml".
  Value table(const std::string& name) const;

 private:
  std::string folder_;
};

}  // namespace tessera::options
