#pragma once

#include <string>
#include <vector>

#include "framework/options/value.h"

namespace tessera::options {

/// The tables of mappings/: flags and tensor names of other programs. They are compiled into the program; if a folder
/// is given, its files are read instead. With them go the keys that the user asks readers to ignore.
class Mappings {
 public:
  Mappings() = default;
  /// `folder` replaces the compiled-in tables; empty: the compiled-in tables. Throws ConfigError if it is not a folder.
  explicit Mappings(std::string folder);

  /// The names of all tables, such as "weights/gpt2.yaml", sorted.
  std::vector<std::string> names() const;
  /// The text of the table `name`. Throws ConfigError, listing all tables, if there is no such table; also if its file
  /// cannot be read.
  std::string text(const std::string& name) const;
  /// The table `name`, parsed as YAML; origins name the file as "mappings/weights/gpt2.yaml". Throws ConfigError as
  /// text() does, and for invalid YAML.
  Value table(const std::string& name) const;
  /// Length of the longest chain of tables that `name` is `like`: 0 for a table of its own.
  int likes(const std::string& name) const;

  /// Adds `keys` to those that a reader of another program's settings treats as if they were not in the file, whatever
  /// its table says: --ignore-key, training_config.ignore_config_keys.
  void ignore_keys(const std::vector<std::string>& keys);
  const std::vector<std::string>& ignored_keys() const { return ignored_keys_; }

 private:
  std::string folder_;
  std::vector<std::string> ignored_keys_;
};

}  // namespace tessera::options
